"""The live line of progress on a terminal: what is done, how far, for how long, and how long to go."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.text import Text

from onnx_symmem.run.stages import STEPS

__all__ = ["live_line"]

_HURRIED = 1.0  # seconds: of work that ends sooner, nobody asks how long it takes
_REMEMBERED = 600.0  # seconds of steps that the time left is told by; a step may be a whole model


def live_line() -> Progress:
    """The line, on stderr. It is taken away in the end: what stays on the screen is the result."""
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(24), _Time())
    return Progress(*columns, console=Console(stderr=True), transient=True, speed_estimate_period=_REMEMBERED)


class _Time(ProgressColumn):
    """Steps, time spent and time left; what is not known is left out."""

    def render(self, task: Task) -> Text:
        parts = []
        if task.total == STEPS:  # parts of a whole, of which none is a thing by itself
            parts.append(f"{task.percentage:.0f} %")
        elif task.total:
            parts.append(f"{int(task.completed)}/{int(task.total)}")
        if task.elapsed is not None and task.elapsed >= _HURRIED:
            parts.append(_clock(task.elapsed))
        if task.time_remaining is not None:
            parts.append(f"{_clock(task.time_remaining)} left")
        return Text("  ".join(parts))


def _clock(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
