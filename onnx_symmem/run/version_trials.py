"""Every version of a model compared with the original: at which shapes, and under which limits.

Each version is tried at a shape where it runs, a level under the very limit that it needs there; where the
shapes at hand do not make it run, small ones are looked for that do. Levels of which some are two Ifs deep,
where kernels pack no weights, are tried at the least shape, too: a matrix of one row has kernels of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnx_symmem.errors import VerificationFailed
from onnx_symmem.expr.samples import legal_near
from onnx_symmem.graph.load import LoadedModel
from onnx_symmem.order.dispatch import Dispatch
from onnx_symmem.rewrite.choice import LIMIT
from onnx_symmem.run.inputs import Fill
from onnx_symmem.run.several import LevelPlan
from onnx_symmem.run.trials import first_running
from onnx_symmem.run.verify import Verification
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["Trial", "trials_of", "verify_trials"]

_DRAWN, _TRIED, _MOST_BYTES = 256, 4, 1 << 31  # shapes drawn, and tried, to find one that a version runs at


@dataclass(frozen=True, slots=True)
class Trial:
    """A shape at which a version is compared with the original; `limit`: what is fed to make it run."""

    shape: Mapping[str, int]
    version: int
    limit: int | None = None


def trials_of(
    several: Dispatch | LevelPlan,
    base: LoadedModel,
    shapes: ModelShapes,
    at: Sequence[Mapping[str, int]],
    provider: str,
    inputs: Mapping[str, Fill],
    seed: int,
    search: bool,
) -> list[Trial]:
    """Where every version is tried: the shapes `at`, and with `search` others for those not run there.

    A level is tried under the very limit that it needs.
    """
    if search and isinstance(several, LevelPlan) and len(several.levels) > 2 and several.only is None:
        least = first_running(base, shapes, _least_shapes(shapes), provider, inputs, seed, base.label)
        at = at if least is None or least in at else [*at, least]
    full = [shapes.domain.completed(shape) for shape in at]
    if isinstance(several, Dispatch):
        count = len(several.versions)
        trials = [Trial(shape, several.version_at(known)) for shape, known in zip(at, full, strict=True)]
    else:
        count = len(several.levels)
        if several.only is not None:
            return [Trial(shape, 0) for shape in at]
        pairs = zip(at, full, strict=True)
        trials = [
            Trial(s, k, several.needed(k, f)) for s, f in pairs for k in range(count) if _runs(several, k, f)
        ]
    missing = sorted(set(range(count)) - {t.version for t in trials})
    for version in missing if search else ():
        wanted = _small_shapes_of(version, several, shapes)
        running = first_running(base, shapes, wanted, provider, inputs, seed, base.label)
        if running is not None:
            known = shapes.domain.completed(running)
            limit = several.needed(version, known) if isinstance(several, LevelPlan) else None
            trials.append(Trial(running, version, limit))
    return trials


def _runs(several: Dispatch | LevelPlan, version: int, shape: Mapping[str, int]) -> bool:
    """Whether a version runs at a shape, a level under the limit that it needs there."""
    if isinstance(several, Dispatch):
        return several.version_at(shape) == version
    return several.level_at(shape, several.needed(version, shape)) == version


def _least_shapes(shapes: ModelShapes) -> list[Mapping[str, int]]:
    """The shape of which every dim is as small as may be, but not 0, if there is one."""
    domain = shapes.domain
    names = [name for name in shapes.input_symbols if name not in domain.equalities]
    found = legal_near(domain, {name: max(domain.range_of(name).lo, 1) for name in names})
    return [] if found is None else [found]


def _small_shapes_of(
    version: int, several: Dispatch | LevelPlan, shapes: ModelShapes
) -> list[Mapping[str, int]]:
    """A few shapes at which a version runs, those that take least first."""
    drawn = shapes.domain.samples(_DRAWN, symbols=shapes.input_symbols)
    full: list[Mapping[str, int]] = [shapes.domain.completed(shape) for shape in drawn]
    peak = several.peak if isinstance(several, Dispatch) else several.levels[0].peak
    here = [shape for shape in full if _runs(several, version, shape) and peak.at(shape) <= _MOST_BYTES]
    return sorted(here, key=peak.at)[:_TRIED]


def verify_trials(
    trials: Sequence[Trial],
    count: int,
    compare: Callable[
        [Sequence[Mapping[str, int]], bool, Mapping[str, np.ndarray]], tuple[Verification, ...]
    ],
) -> tuple[Verification, ...]:
    """Run all trials of a model of `count` versions, those together that run under the same settings.

    `compare` is given shapes, whether kernels may pack weights, and what is fed on top. Two Ifs deep none are
    packed: where that gives other last bits than the original has, both sides run unpacked, and it is said.
    """
    groups: dict[tuple[bool, int | None], list[Mapping[str, int]]] = {}
    for trial in trials:
        deep = count > 2 and trial.version > 0
        groups.setdefault((deep, trial.limit), []).append(trial.shape)
    found: list[Verification] = []
    for (deep, limit), at in groups.items():
        fed = {} if limit is None else {LIMIT: np.array(limit, np.int64)}
        try:
            found += compare(at, True, fed)
        except VerificationFailed:
            if not deep:
                raise
            found += compare(at, False, fed)
    return tuple(found)
