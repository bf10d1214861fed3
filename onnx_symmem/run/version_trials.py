"""Every version of a model compared with the original: at which shapes, and under which limits.

Each version is tried at a shape where it runs, a level under the very limit that it needs there; where the
shapes at hand do not make it run, small ones are looked for that do. Levels of which some are two Ifs deep,
where kernels pack no weights, are tried at the least shape, too: a matrix of one row has kernels of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onnx_symmem.errors import VerificationFailed
from onnx_symmem.expr.samples import legal_near
from onnx_symmem.graph.load import LoadedModel
from onnx_symmem.order.dispatch import Dispatch
from onnx_symmem.rewrite.choice import LIMIT
from onnx_symmem.run.inputs import Fill
from onnx_symmem.run.session import create_session, kept
from onnx_symmem.run.several import LevelPlan
from onnx_symmem.run.trials import first_running
from onnx_symmem.run.verify import Verification
from onnx_symmem.shapes.table import ModelShapes

if TYPE_CHECKING:
    import onnxruntime

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
    session: onnxruntime.InferenceSession | None = None

    def running(wanted: Sequence[Mapping[str, int]]) -> Mapping[str, int] | None:
        nonlocal session
        session = session or create_session(base, kept(provider))
        return first_running(session, shapes, wanted, inputs, seed, base.label)

    if search and isinstance(several, LevelPlan) and len(several.levels) > 2 and several.only is None:
        least = running(_least_shapes(shapes))
        at = at if least is None or least in at else [*at, least]
    count = len(several.versions) if isinstance(several, Dispatch) else len(several.levels)
    if isinstance(several, LevelPlan) and several.only is not None:
        return [Trial(shape, 0) for shape in at]

    def trial(shape: Mapping[str, int], version: int) -> Trial:
        full = shapes.domain.completed(shape)
        return Trial(
            shape, version, several.needed(version, full) if isinstance(several, LevelPlan) else None
        )

    trials = [trial(s, k) for s in at for k in _running_at(several, shapes.domain.completed(s))]
    missing = sorted(set(range(count)) - {t.version for t in trials})
    wanted = _small_shapes_of(missing, several, shapes) if search and missing else {}
    for version, small in wanted.items():
        found = running(small)
        if found is not None:
            trials.append(trial(found, version))
    return trials


def _running_at(several: Dispatch | LevelPlan, shape: Mapping[str, int]) -> tuple[int, ...]:
    """The versions that run at a shape, of levels those that do under the limit that they need there."""
    if isinstance(several, Dispatch):
        return (several.version_at(shape),)
    levels = range(len(several.levels))
    return tuple(k for k in levels if several.level_at(shape, several.needed(k, shape)) == k)


def _least_shapes(shapes: ModelShapes) -> list[Mapping[str, int]]:
    """The shape of which every dim is as small as may be, but not 0, if there is one."""
    domain = shapes.domain
    names = [name for name in shapes.input_symbols if name not in domain.equalities]
    found = legal_near(domain, {name: max(domain.range_of(name).lo, 1) for name in names})
    return [] if found is None else [found]


def _small_shapes_of(
    versions: Sequence[int], several: Dispatch | LevelPlan, shapes: ModelShapes
) -> dict[int, list[Mapping[str, int]]]:
    """A few shapes at which each version runs, those that take least first."""
    drawn = shapes.domain.samples(_DRAWN, symbols=shapes.input_symbols)
    peak = several.peak if isinstance(several, Dispatch) else several.levels[0].peak
    sized = [(peak.at(full), full) for full in map(shapes.domain.completed, drawn)]
    found: dict[int, list[Mapping[str, int]]] = {version: [] for version in versions}
    for size, shape in sorted(sized, key=lambda pair: pair[0]):
        if size > _MOST_BYTES or all(len(small) == _TRIED for small in found.values()):
            break
        for version in _running_at(several, shape):
            if version in found and len(found[version]) < _TRIED:
                found[version].append(shape)
    return found


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
