"""Shapes at which a model can be tried out: small, legal, and found to run on generated inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from onnx_symmem.errors import DomainError, RunFailed, VerificationFailed
from onnx_symmem.expr.samples import legal_near
from onnx_symmem.graph.load import LoadedModel
from onnx_symmem.run.inputs import Fill, generate_inputs
from onnx_symmem.run.session import create_session, feeds_of, kept, run_session
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["runnable_shapes"]

_SIZES = (2, 5, 17, 32, 64, 128, 224)  # tried for every dim, until enough shapes run
_MOST_BYTES = 1 << 31  # shapes whose predicted peak is above are not tried


def runnable_shapes(
    base: LoadedModel,
    shapes: ModelShapes,
    peak_at: Callable[[Mapping[str, int]], int],
    count: int,
    provider: str = "cpu",
    inputs: Mapping[str, Fill] | None = None,
    seed: int = 0,
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
        free = {n: shape[n] for n in shapes.input_symbols}
        try:
            run_session(session, feeds_of(generate_inputs(shapes, free, inputs, seed)))
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


def _trial_shapes(shapes: ModelShapes) -> Iterator[Mapping[str, int]]:
    domain = shapes.domain
    names = [
        n for n in dict.fromkeys((*shapes.input_symbols, *domain.symbols())) if n not in domain.equalities
    ]
    seen: set[tuple[tuple[str, int], ...]] = set()
    for size in _SIZES:
        wanted = {}
        for k, name in enumerate(names):
            allowed = domain.range_of(name)
            value = max(size + k, allowed.lo)
            wanted[name] = value if allowed.hi is None else min(value, allowed.hi)
        legal = legal_near(domain, wanted)
        if legal is not None and tuple(sorted(legal.items())) not in seen:
            seen.add(tuple(sorted(legal.items())))
            yield legal
