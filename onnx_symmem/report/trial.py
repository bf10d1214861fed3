"""Two models at one shape -> the figures of `compare`: memory of both, and whether outputs are equal."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite
from typing import Any

from onnx_symmem.errors import UsageError, VerificationFailed
from onnx_symmem.graph.load import LoadedModel, load_model
from onnx_symmem.order.candidates import Tick
from onnx_symmem.report.measurements import Comparison, OutputsCompared, measured_run
from onnx_symmem.rewrite.reorder import delivery_of
from onnx_symmem.run.inputs import Fill, generate_inputs, resolve_shape
from onnx_symmem.run.measure import count_runs, domain_at, measure, measure_baseline
from onnx_symmem.run.session import shipped
from onnx_symmem.run.verify import verify
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["compare_models"]

_LEVELS = ("extended", "basic", "none")


def compare_models(
    before: Any,
    after: Any,
    at: Mapping[str, int],
    *,
    provider: str = "cpu",
    overrides: Mapping[str, Fill] | None = None,
    tolerance: float = 0.0,
    level: str = "extended",
    seed: int = 0,
    tick: Tick | None = None,
) -> Comparison:
    """Measure `before` as shipped and as planned at `level`, `after` as planned, and compare their outputs.

    All run on the same inputs. Fused operators round differently: where `level` does not give the bits of
    `after`, `before` also runs at the other levels, and the one that agrees best counts.
    """
    tick = tick or (lambda _stage, _done, _total: None)
    tick("inferring shapes", 0, 0)
    first, second = load_model(before), load_model(after)
    asked = domain_at(at)
    known, known_after = infer_shapes(first.view(), asked), infer_shapes(second.view(), asked)
    _same_interface(first, second, known, known_after)
    shape = resolve_shape(known, at)
    shape_after = {name: shape[name] for name in known_after.input_symbols if name in shape}
    feeds = generate_inputs(known, shape, overrides, seed)
    runs = count_runs()
    steps = 3 * runs + 2  # and one run of each to compare outputs

    def part(words: str, number: int) -> Tick:
        return lambda _stage, done, _total: tick(words, number * runs + done, steps)

    as_shipped = measure(
        first, shape, settings=shipped(provider), overrides=feeds, seed=seed, shapes=known,
        tick=part("running before, as shipped", 0),
    )  # fmt: skip
    reuse = delivery_of(second.proto) == "anchors"
    base = measure_baseline(
        first, shape, level, provider, feeds, seed=seed, shapes=known, mem_reuse=reuse,
        tick=part(f"running before, ONNX Runtime's graph and order at level {level}", 1),
    )  # fmt: skip
    result = measure(
        second, shape_after, provider=provider, overrides=feeds, seed=seed, shapes=known_after,
        tick=part("running after, as planned", 2),
    )  # fmt: skip
    tick("comparing outputs", 3 * runs, steps)
    found: list[OutputsCompared] = []
    for tried in (level, *(other for other in _LEVELS if other != level)):
        found.append(_outputs(first, second, known, shape, tried, provider, feeds, seed, tolerance))
        if found[-1].bit_equal:
            break
    best = min(found, key=_badness)
    shown = [measured_run(m) for m in (as_shipped, base, result)]
    return Comparison(base.shape, provider, level, shown[0], shown[1], shown[2], best)


def _same_interface(
    first: LoadedModel, second: LoadedModel, known: ModelShapes, known_after: ModelShapes
) -> None:
    """Raise UsageError where the second model cannot run on the first one's inputs or lacks an output."""
    a, b = known.graph.view, known_after.graph.view
    given = {a.values[i].name for i in a.inputs}
    needed = [b.values[i].name for i in b.inputs if i not in b.initializers]
    missing = [name for name in needed if name not in given]
    if missing:
        raise UsageError(f"{second.label}: its input '{missing[0]}' is no input of {first.label}")
    unused = sorted(given - {b.values[i].name for i in b.inputs})
    if unused:
        raise UsageError(f"{second.label}: it has no input '{unused[0]}', as {first.label} has")
    made = {b.values[i].name for i in b.outputs}
    lost = [a.values[i].name for i in a.outputs if a.values[i].name not in made]
    if lost:
        raise UsageError(f"{second.label}: it has no output '{lost[0]}', as {first.label} has")


def _outputs(
    first: LoadedModel,
    second: LoadedModel,
    known: ModelShapes,
    shape: Mapping[str, int],
    level: str,
    provider: str,
    feeds: Mapping[str, Fill],
    seed: int,
    tolerance: float,
) -> OutputsCompared:
    count = len(known.graph.view.outputs)
    try:
        (found,) = verify(
            first, second, known, [shape], level=level, provider=provider, overrides=feeds, seed=seed,
            tolerance=tolerance,
        )  # fmt: skip
    except VerificationFailed as error:
        worst = _finite(error.absolute), _finite(error.relative)
        return OutputsCompared(False, False, count, level, tolerance, *worst, str(error))
    return OutputsCompared(
        True, found.equal, found.outputs, level, tolerance, found.worst_absolute, found.worst_relative
    )


def _finite(difference: float | None) -> float | None:
    """A difference as JSON can hold it: where a NaN stands against a number there is none."""
    return difference if difference is not None and isfinite(difference) else None


def _badness(found: OutputsCompared) -> tuple[bool, float]:
    """Equal outputs first, then the smallest difference; one that is not a number is the worst."""
    lost = not found.equal and found.worst_relative is None
    return not found.equal, inf if lost else found.worst_relative or 0.0
