"""What settings of a session do to memory: which part dominates at small shapes, what holds what is not used.

Planned models of the corpus, measured under the settings that keep a plan and under others, each at a
small and a large shape. `static` are weights that kernels lay out anew, `tensors` outputs and activations,
`scratch` kernels' own buffers and chunk slack; `held` is what the arena has of the system after the second
run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnxruntime as ort

from benchmarks.document import Cell, Finding, Page, Table, geometric_mean
from benchmarks.environment import Progress
from benchmarks.trials import larger_shapes
from benchmarks.weights import CORPUS, FILLED, is_complete, prepare, read_cases
from onnx_symmem.api import optimize
from onnx_symmem.errors import SymmemError
from onnx_symmem.graph.load import load_model
from onnx_symmem.order.candidates import SearchLimits
from onnx_symmem.run.measure import Measurement, measure
from onnx_symmem.run.session import SessionSettings, kept_for, shipped

__all__ = ["SETTINGS", "Variant", "run"]

_MIB = 1 << 20
_SPLIT = 1  # bytes of a chunk that may be wasted: chunks are always split (0 makes ONNX Runtime abort)
_FEW = replace(SearchLimits(), improved=1, rounds=0)
_ENVIRONMENT = ("session.use_env_allocators", "1")


@dataclass(frozen=True, slots=True)
class Variant:
    """Settings of a session and of the arena it uses; `arena` None: as the settings say.

    `reserve`: the arena's first block is what the run needs by prediction.
    """

    arena: Mapping[str, int] | None = None
    config: tuple[tuple[str, str], ...] = ()
    reserve: bool = False

    def measured(self, path: Path, shape: Mapping[str, int], base: SessionSettings, need: int) -> Measurement:
        """Two runs in a session of its own."""
        settings = replace(base, config=(*base.config, *self.config))
        if self.arena is not None:
            first = {"initial_chunk_size_bytes": need} if self.reserve else {}
            _register({**self.arena, **first})
            # `power_of_two` keeps the session from registering an arena of its own.
            settings = replace(settings, arena="power_of_two", config=(*settings.config, _ENVIRONMENT))
        return measure(path, shape, settings=settings, latency_runs=0)


def _register(arena: Mapping[str, int]) -> None:
    where = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    ort.create_and_register_allocator(where, ort.OrtArenaCfg(dict(arena)))


_CAPPED = {
    "arena_extend_strategy": 0,
    "initial_chunk_size_bytes": _MIB,
    "max_power_of_two_extend_bytes": _MIB,
    "max_dead_bytes_per_chunk": _SPLIT,
}
_UNPACKED = (("session.disable_prepacking", "1"),)
SETTINGS: Mapping[str, Variant] = {
    "kept": Variant(),
    "kept, chunks split": Variant({"arena_extend_strategy": 1, "max_dead_bytes_per_chunk": _SPLIT}),
    "grown by 1 MiB": Variant(_CAPPED),
    "predicted peak reserved": Variant(_CAPPED, reserve=True),
    "kept, not prepacked": Variant(config=_UNPACKED),
    "reserved, not prepacked": Variant(_CAPPED, _UNPACKED, reserve=True),
}
"""By name. `kept` is what `create_session` uses."""


def run(only: Sequence[str] = ()) -> Page:
    """The tables over the corpus."""
    rows: list[tuple[Cell, ...]] = []
    ratios: dict[tuple[str, str], list[tuple[float, float]]] = {}
    notes: list[str] = []
    cases = {}
    if (CORPUS / "cases.json").is_file():
        cases = {n: c for n, c in read_cases(CORPUS).items() if c["cases"] and (not only or n in only)}
        prepare(CORPUS, FILLED, list(cases))
    for name, entry in Progress("arena").each(cases):
        path = FILLED / f"{name}.onnx"
        if not is_complete(path):
            continue
        try:
            for size, words, setting, m, plain in _measurements(path, entry["cases"]):
                in_use, held = m.runs[-1].in_use_peak, m.runs[-1].held
                ratio = in_use / plain.runs[-1].in_use_peak, held / plain.runs[-1].held
                ratios.setdefault((size, setting), []).append(ratio)
                parts = (m.static_bytes, m.runs[0].requested_peak, m.scratch, in_use, held)
                rows.append((name, words, setting, *(part / _MIB for part in parts), *ratio))
        except SymmemError as error:
            notes.append(f"{name}: {error}")
    means: tuple[tuple[Cell, ...], ...] = tuple(
        (size, setting, len(found), geometric_mean(r[0] for r in found), geometric_mean(r[1] for r in found))
        for (size, setting), found in ratios.items()
    )
    return Page(
        "arena",
        "Settings of a session, and what they do to memory",
        """Planned models of the corpus on ONNX Runtime's CPU provider, second run of the same shape, beside
        the original model in a session as shipped. Models are planned with less search than usual.""",
        tuple(
            Finding(f"{setting}, {size} shapes: in use and held / shipped", f"{used:.3f} and {held:.3f}")
            for size, setting, _, used, held in means
        ),
        (
            Table(
                "arena_means",
                "Geometric means over shipped",
                ("shapes", "settings", "models", "in use", "held"),
                means,
                """kept: what `create_session` uses, every extension as large as the request; chunks split: no
                chunk is larger than what was asked for; grown by 1 MiB: extensions are multiples of what the
                request needs, chunks are split; predicted peak reserved: the arena's first block is as
                large as the predicted peak of outputs and activations; not prepacked: weights stay as they
                are in the file.""",
            ),
            Table(
                "arena",
                "Every model",
                ("model", "shape", "settings", "static", "tensors", "scratch", "in use", "held",
                 "in use / shipped", "held / shipped"),
                tuple(rows),
                "MiB.",
                digits=2,
            ),
        ),
        tuple(notes),
    )  # fmt: skip


def _measurements(
    path: Path, cases: Sequence[Mapping[str, int]]
) -> Iterator[tuple[str, str, str, Measurement, Measurement]]:
    """(small or large, shape in words, settings, measured, as shipped) at two shapes."""
    with tempfile.TemporaryDirectory(prefix="onnx-symmem-") as folder:
        planned = Path(folder, "planned.onnx")
        found = optimize(path, planned, verify=False, search=_FEW)
        base = kept_for(load_model(planned))
        for size, shape in (("small", cases[0]), ("large", next(larger_shapes(found, cases)))):
            words = ", ".join(f"{k}={v}" for k, v in shape.items())
            plain = measure(path, shape, settings=shipped(), latency_runs=0)
            need = 0
            for setting, variant in SETTINGS.items():
                result = variant.measured(planned, shape, base, need)
                need = need or result.runs[0].requested_peak
                yield size, words, setting, result, plain
