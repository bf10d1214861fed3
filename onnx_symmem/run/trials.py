"""Shapes at which a model can be tried out: small, legal, and found to run on generated inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from onnx_symmem.errors import DomainError, RunFailed, VerificationFailed
from onnx_symmem.expr.domain import SymbolRange
from onnx_symmem.expr.samples import legal_near
from onnx_symmem.graph.load import LoadedModel
from onnx_symmem.run.inputs import Fill, generate_inputs
from onnx_symmem.run.session import create_session, feeds_of, kept, run_session
from onnx_symmem.shapes.table import ModelShapes

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["first_running", "runnable_shapes"]

_SIZES = (2, 5, 17, 32, 64, 128, 224)  # tried for every dim, until enough shapes run
_SMALL = 4  # so many of them are small
_MOST_BYTES = 1 << 31  # shapes whose predicted peak is above are not tried


def runnable_shapes(
    base: LoadedModel,
    shapes: ModelShapes,
    peak_at: Callable[[Mapping[str, int]], int],
    count: int,
    provider: str = "cpu",
    inputs: Mapping[str, Fill] | None = None,
    seed: int = 0,
    label: str = "model",
) -> tuple[Mapping[str, int], ...]:
    """Up to `count` small shapes at which the graph runs; `peak_at` predicts bytes, to leave large ones out.

    Raises VerificationFailed where it runs at none of those tried.
    """
    session = create_session(base, kept(provider))
    found: list[Mapping[str, int]] = []
    reason = "no shape in the domain is small enough"
    for shape in _trial_shapes(shapes):
        if len(found) == count:
            break
        if peak_at(shape) > _MOST_BYTES:
            continue
        try:
            free = _agreeing(shapes, {n: shape[n] for n in shapes.input_symbols})
            run_session(session, feeds_of(generate_inputs(shapes, free, inputs, seed)), label=label)
        except (RunFailed, DomainError) as error:
            reason = str(error)
            continue
        found.append(free)
    if not found:
        raise VerificationFailed(
            f"the model runs at none of the shapes tried on generated inputs ({reason}); say where it runs "
            "with --verify-at, or what its inputs need with --input"
        )
    return tuple(found)


def first_running(
    session: onnxruntime.InferenceSession,
    shapes: ModelShapes,
    wanted: Sequence[Mapping[str, int]],
    inputs: Mapping[str, Fill] | None = None,
    seed: int = 0,
    label: str = "model",
) -> Mapping[str, int] | None:
    """The first of the `wanted` shapes at which a session of the graph runs; None where it runs at none."""
    for shape in wanted:
        try:
            free = {n: shape[n] for n in shapes.input_symbols}
            run_session(session, feeds_of(generate_inputs(shapes, free, inputs, seed)), label=label)
        except (RunFailed, DomainError):
            continue
        return free
    return None


def _agreeing(shapes: ModelShapes, shape: Mapping[str, int]) -> dict[str, int]:
    """The shape with sizes that the model's own equations say, such as total = past + seq."""
    result = dict(shape)
    for a in shapes.assumptions:
        for side, other in ((a.left, a.right), (a.right, a.left)):
            atom = side.as_atom()
            if a.kind not in ("equal", "equal_or_one") or atom is None or atom.name not in result:
                continue
            if len(other.symbols()) > 1 and atom.name not in other.symbols() <= result.keys():
                result[atom.name] = max(other.evaluate(result), 1)
                break
    return result


def _trial_shapes(shapes: ModelShapes) -> Iterator[Mapping[str, int]]:
    """Legal shapes: dims small and all different, then equal, then one as large as the others together.

    Different sizes tell most. Equal ones are for dims that must agree, and a large one for lengths that
    must cover others (a mask over past and present), where the shapes do not say so; larger ones come last.
    """
    domain = shapes.domain
    symbols = dict.fromkeys((*shapes.input_symbols, *domain.symbols()))
    names = [name for name in symbols if name not in domain.equalities]
    seen: set[tuple[tuple[str, int], ...]] = set()
    small = [_alike(names, size) for size in _SIZES[:_SMALL]]
    wishes = [*small, *(dict.fromkeys(names, size) for size in _SIZES[:_SMALL])]
    for alike in small[:2]:
        total = sum(alike.values())
        wishes += [{**alike, name: total - alike[name]} for name in names]
    wishes += [_alike(names, size) for size in _SIZES[_SMALL:]]
    for wanted in wishes:
        legal = legal_near(domain, {n: _within(v, domain.range_of(n)) for n, v in wanted.items()})
        key = tuple(sorted((legal or {}).items()))
        if legal is not None and key not in seen:
            seen.add(key)
            yield legal


def _alike(names: Sequence[str], size: int) -> dict[str, int]:
    """Sizes that are near each other and all different."""
    return {name: size + k for k, name in enumerate(names)}


def _within(value: int, allowed: SymbolRange) -> int:
    value = max(value, allowed.lo)
    return value if allowed.hi is None else min(value, allowed.hi)
