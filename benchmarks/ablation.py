"""What each part of the search for an order is worth, on wide and narrow domains.

onnxruntime       the order that would have run
symbolic-greedy   the paper: symbolic comparisons, the file's order where they do not decide
portfolio         heuristics steered by numbers at the steering shapes, proofs by symbols
local search      the best of these improved around their worst moments
ours              also searched for single shapes, spliced, and again where a proof was refuted
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.case import NO_BOUND, Case, Planned, ratios
from benchmarks.document import Cell, Finding, Page, Table, geometric_mean
from benchmarks.environment import Progress
from benchmarks.families import graph_sources
from benchmarks.orders import NO_SEARCH
from benchmarks.verdicts import WIDTHS
from onnx_symmem.order.baselines import symbolic_greedy
from onnx_symmem.order.candidates import peaks_at

__all__ = ["GRAPHS", "STEPS", "ablated", "run"]

GRAPHS = (
    "squeezenet_train", "shufflenet_train", "inception_v1_train", "bvlc_alexnet_train", "randwire_0",
    "nasnet", "encoder_decoder_cached", "decoder", "transformer_train", "series_parallel_0",
    "series_parallel_1",
    "whisper_decoder", "llama_4l_train",
)  # fmt: skip
STEPS = ("onnxruntime", "symbolic-greedy", "portfolio", "+ beam", "+ local search", "one order", "ours")
_LOCAL = replace(NO_BOUND, improved=1, spliced=1, rounds=0)
_BEAM = replace(_LOCAL, window=replace(_LOCAL.window, work=0, splits=0))


def ablated(case: Case) -> dict[str, float]:
    """The worst peak / bound at the steering shapes, by what is left in."""
    graph = case.graph
    ours = case.planned()
    bound = case.bound(ours)
    forward, _ = symbolic_greedy(graph, case.buffer_sizes(graph), case.domain)
    peaks = {
        "onnxruntime": peaks_at(case.before, case.shapes),
        "symbolic-greedy": case.peaks(forward),
        "portfolio": _at(case, case.planned(NO_SEARCH, dispatch=False)),
        "+ beam": _at(case, case.planned(_BEAM, dispatch=False)),
        "+ local search": _at(case, case.planned(_LOCAL, dispatch=False)),
        "one order": [ours.one_order.at(s) for s in case.shapes],
        "ours": _at(case, ours),
    }
    return {step: max(ratios(peaks[step], bound), default=1.0) for step in STEPS}


def _at(case: Case, planned: Planned) -> list[int]:
    return [planned.at(shape) for shape in case.shapes]


def run(only: Sequence[str] = ()) -> Page:
    """The grid over some graphs of all families."""
    wanted = only or GRAPHS
    sources = {n: s for n, s in graph_sources().items() if n in wanted}
    tasks = {f"{n} {width}": (n, s, width) for n, s in sources.items() for width in WIDTHS}
    rows: list[tuple[Cell, ...]] = []
    found: dict[str, list[dict[str, float]]] = {}
    wrong: list[str] = []
    progress = Progress("ablation")
    for task, (name, source, width) in progress.each(tasks):
        with progress.attempt(task, wrong):
            by_step = ablated(source.case(WIDTHS[width]))
            found.setdefault(width, []).append(by_step)
            rows.append((name, width, *by_step.values()))
    for width, cases in found.items():
        rows.append(("geometric mean", width, *(geometric_mean(c[step] for c in cases) for step in STEPS)))
    means = {step: geometric_mean(c[step] for cases in found.values() for c in cases) for step in STEPS}
    return Page(
        "ablation",
        "What each part of the search is worth",
        """The largest peak / certified bound over the steering shapes, on three widths of the domain (the
        range of every input dim, in units of its divisor). Formulas alone; nothing is run.""",
        tuple(Finding(f"geometric mean, {step}", f"{mean:.3f}") for step, mean in means.items()),
        (
            Table(
                "ablation",
                "Worst peak / bound",
                ("graph", "width", *STEPS),
                tuple(rows),
                """symbolic-greedy: the paper's, with the file's order as fallback; portfolio: numeric
                heuristics at the steering shapes and selection with proof; + beam: the best one improved by a
                search over the sets of nodes that ran; + local search: and by cuts, moves and short windows;
                one order: several improved, searched for single shapes, spliced, steered by refutations;
                ours: up to four orders among which the shape decides.""",
            ),
        ),
        wrong=tuple(wrong),
    )
