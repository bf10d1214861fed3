"""Models that keep their plan by themselves: order and peak where ONNX Runtime's own order and reuse are on.

Corpus models written with anchors at the default level, extended, at the last of their shapes. First with
what every API can set, no optimisation at load and no memory pattern: there everything has to be as planned,
in every run. Then with no option at all, where ONNX Runtime optimises at level all: there the order and the
peak of the first run are to be.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.document import Cell, Finding, Page, Table, geometric_mean
from benchmarks.environment import Progress
from benchmarks.weights import CORPUS, FILLED, is_complete, prepare, read_cases
from onnx_symmem.api import optimize
from onnx_symmem.errors import SymmemError
from onnx_symmem.order.limits import SearchLimits, within_budget
from onnx_symmem.run.measure import measure
from onnx_symmem.run.session import shipped

__all__ = ["run"]

_MIB = 1 << 20
_RUNS = 9
_SEARCH = within_budget(2.0, SearchLimits())


def run(only: Sequence[str] = ()) -> Page:
    """The table over the corpus."""
    rows: list[tuple[Cell, ...]] = []
    wrong: list[str] = []
    notes: list[str] = []
    cases = {}
    if (CORPUS / "cases.json").is_file():
        cases = {n: c for n, c in read_cases(CORPUS).items() if c["cases"] and (not only or n in only)}
        prepare(CORPUS, FILLED, list(cases))
    for name, entry in Progress("delivery").each(cases):
        path = FILLED / f"{name}.onnx"
        if not is_complete(path):
            continue
        try:
            row, problem = _row(name, path, entry["cases"][-1])
        except SymmemError as error:
            notes.append(f"{name}: {error}")
            continue
        rows.append(row)
        wrong += [problem] if problem else []
    kept = [row for row in rows if row[6] == "yes"]
    orders = [row for row in rows if row[7] == "yes"]
    first = [row for row in rows if row[8] == "yes"]
    return Page(
        "delivery",
        "Plans that are kept by the file alone",
        """Corpus models optimised with `--delivery anchors` and little search, on ONNX Runtime's CPU
        provider under its own order with memory reuse. What would have run is the model at level extended;
        a session that is told nothing optimises at level all.""",
        (
            Finding(
                "as planned after every node, by settings of any API", f"{len(kept)} of {len(rows)}", "all",
                len(kept) == len(rows),
            ),
            Finding(
                "order kept by a session that is told nothing", f"{len(orders)} of {len(rows)}", "all",
                len(orders) == len(rows),
            ),
            Finding(
                "peak of its first run kept, too", f"{len(first)} of {len(rows)}", "all",
                len(first) == len(rows),
            ),
            Finding("peak / what would have run", _mean(rows, 5)),
            Finding("latency / the same order without anchors", _mean(rows, 12)),
        ),
        (
            Table(
                "delivery",
                "Every model",
                ("model", "nodes", "anchors", "never worse", "peak, MiB", "/ would have run", "as planned",
                 "order, shipped", "first peak, shipped", "why not",
                 "first / planned", "second / planned",
                 "latency / order"),
                tuple(rows),
                """as planned: order, and bytes after every node of two runs, with optimisation and memory
                pattern off and reuse on. shipped: all optimisations, memory pattern and a growing arena;
                `first` and `second` are the tensor bytes of the first run and of the second, whose memory
                pattern holds one block, over the planned peak. What would have run reuses buffers, too.""",
                digits=3,
            ),
        ),
        tuple(notes),
        tuple(wrong),
    )  # fmt: skip


def _row(name: str, path: Path, case: Mapping[str, int]) -> tuple[tuple[Cell, ...], str]:
    """What became of one model, and what is wrong with it."""
    with tempfile.TemporaryDirectory(prefix="onnx-symmem-") as folder:
        out, plain = Path(folder, "anchored.onnx"), Path(folder, "order.onnx")
        found = optimize(path, out, delivery="anchors", search=_SEARCH, verify=False).details
        optimize(path, plain, search=_SEARCH, verify=False, dispatch=False)
        shape = {symbol: case[symbol] for symbol in found.shapes.input_symbols}
        measured = measure(out, shape, latency_runs=_RUNS)
        own = measure(out, shape, settings=shipped(), latency_runs=0, plan=measured.settings)
        ordered = measure(plain, shape, latency_runs=_RUNS)
    plan = measured.predicted_peak or 0
    as_planned = measured.nodes_equal == 1.0 and all(r.requested_peak == plan for r in measured.runs)
    in_order = not own.prediction.why_not
    first, second = (r.requested_peak for r in own.runs)
    before = None if measured.prediction.taken else found.choice.before.at(measured.shape)
    latency = (measured.latency_ms or 0.0) / (ordered.latency_ms or 1.0)
    row: tuple[Cell, ...] = (
        name, len(found.before.plan.order), found.delivered.anchors if found.delivered else 0,
        found.never_worse, plan / _MIB, None if before is None else plan / before,
        _yes(as_planned), _yes(in_order), _yes(in_order and first <= plan),
        own.prediction.why_not, first / plan, second / plan, latency,
    )  # fmt: skip
    why = measured.prediction.why_not or "bytes differ"
    return row, "" if as_planned else f"{name}: not as planned: {why}"


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"


def _mean(rows: Sequence[tuple[Cell, ...]], column: int) -> str:
    return f"{geometric_mean(r for row in rows if isinstance(r := row[column], float)):.3f}"
