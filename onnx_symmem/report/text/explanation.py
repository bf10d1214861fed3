"""The result of `shapes --why` on the terminal: per dim the way back to the inputs, one place per line."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from onnx_symmem.report.explanation import DimReason, Explanation, Step
from onnx_symmem.report.text.inference import dims_text
from onnx_symmem.report.text.layout import QUIET, facts, heading, indented, quiet

__all__ = ["show_explanation"]

_RUN = 4  # from so many places that take a dim over as it is, only the first and the last are shown
_DEEPEST = 8  # how far sources are moved to the right


def show_explanation(console: Console, found: Explanation) -> None:
    """What the tensor is, then each of its dims."""
    tensor = found.tensor
    console.print(Text(found.model, style="bold"))
    made_by = tensor.node or tensor.kind
    rows = [("tensor", tensor.name), ("made by", made_by), ("type", tensor.type), ("dims", dims_text(tensor))]
    if tensor.graph:
        rows.insert(1, ("in", tensor.graph))
    facts(console, rows)
    if found.reason:
        console.print()
        indented(console, Text(f"not even the number of dims is known: {found.reason}", overflow="fold"))
    for dim in found.dims:
        heading(console, f"{tensor.name}[{dim.axis}] = {dim.value}")
        _dim(console, dim)


def _dim(console: Console, dim: DimReason) -> None:
    """The steps depth first; sources of a place stand to its right where it has several."""
    steps, shown = dim.steps, set()
    stack = [(0, 0)]
    while stack:
        at, depth = stack.pop()
        step, by = steps[at], 2 + 2 * min(depth, _DEEPEST)
        if at in shown:
            indented(console, quiet(f"{step.place}: see above"), by)
            continue
        shown.add(at)
        _line(console, step, by, at == 0)
        run = _run(steps, at, shown)
        if len(run) >= _RUN:
            shown.update(run)
            indented(console, quiet(f"... the same at {len(run)} more places"), by)
            at = run[-1]
        inner = depth + (len(steps[at].sources) > 1)
        stack += [(source, inner) for source in reversed(steps[at].sources)]


def _run(steps: tuple[Step, ...], at: int, shown: set[int]) -> list[int]:
    """The places behind one that take their value over as it is, as far as they follow each other."""
    found: list[int] = []
    while steps[at].kind == "same":
        at = steps[at].sources[0]
        if at in shown or steps[at].kind != "same":
            break
        found.append(at)
    return found


def _line(console: Console, step: Step, by: int, first: bool) -> None:
    # The first place stands in the heading.
    text = "" if first else f"{step.place} = {step.value if step.value is not None else '?'}  "
    line = Text(text, overflow="fold")
    line.append(f"{step.node}: {step.reason}" if step.node else step.reason, style=QUIET)
    indented(console, line, by)
