"""Predicted beside measured bytes on ONNX Runtime, after every node: random graphs and the corpus.

Every graph is planned, then run at two shapes. The peak by formula, the predicted peak and the measured peak
have to be the same number, and so have predicted and measured bytes after each node.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.document import Cell, Finding, Page, Table
from benchmarks.environment import Progress
from benchmarks.weights import CORPUS, FILLED, is_complete, prepare, read_cases
from models.random_graph import build_random_graph
from onnx_symmem.api import optimize
from onnx_symmem.errors import SymmemError
from onnx_symmem.order.candidates import SearchLimits
from onnx_symmem.run.measure import measure

__all__ = ["Check", "check", "run"]

GRAPHS = 200
_SHAPES = ({"n": 3, "m": 5}, {"n": 1, "m": 1})
_NODES = 24
_CASES = 2
_FEW = replace(SearchLimits(), improved=1, rounds=1)  # what is predicted matters here, not how little it is


@dataclass(frozen=True, slots=True)
class Check:
    """One model at one shape: nodes, those as predicted, and the three peaks; `formula` None: by data."""

    nodes: int
    equal: int
    formula: int | None
    predicted: int | None
    measured: int

    @property
    def as_predicted(self) -> bool:
        """Whether the peak and the bytes after every node are those of the plan of the file."""
        return self.nodes == self.equal > 0 and self.predicted == self.measured

    @property
    def by_formula(self) -> bool:
        """Whether the peak is what `optimize` said before anything ran."""
        return self.formula in (None, self.measured)

    @property
    def holds(self) -> bool:
        """Both."""
        return self.as_predicted and self.by_formula


def check(
    model: Any, shapes: Sequence[Mapping[str, int]], search: SearchLimits | None = None
) -> tuple[Check, ...]:
    """Plan a model, run it at some shapes; raises what `optimize` and `measure` raise."""
    with tempfile.TemporaryDirectory(prefix="onnx-symmem-") as folder:
        planned = Path(folder, "planned.onnx")
        found = optimize(model, planned, search=search)
        after, domain = found.details.after, found.details.shapes.domain
        needed = {s for member in after.members for s in member.symbols()}
        checks = []
        for shape in shapes:
            full = domain.completed(shape)
            result = measure(planned, shape, runs=1, latency_runs=0)
            checks.append(
                Check(
                    len(result.nodes),
                    result.prediction.equal,
                    after.at(full) if needed <= full.keys() else None,
                    result.predicted_peak,
                    result.runs[0].requested_peak,
                )
            )
    return tuple(checks)


def run(only: Sequence[str] = (), graphs: int = GRAPHS) -> Page:
    """Random graphs by seed, then the corpus; `only` picks models of the corpus, or `random`."""
    wrong: list[str] = []
    rows: list[tuple[Cell, ...]] = []
    if not only or "random" in only:
        seeds = {f"random graph {seed}": seed for seed in range(graphs)}
        found: list[Check] = []
        for name, seed in Progress("measured").each(seeds):
            found += _checked(name, build_random_graph(_NODES, seed), _SHAPES, wrong)
        rows.append(_row(f"{graphs} random graphs", found))
    if (CORPUS / "cases.json").is_file():
        cases = {n: c for n, c in read_cases(CORPUS).items() if c["cases"] and (not only or n in only)}
        prepare(CORPUS, FILLED, list(cases))
        for name, entry in Progress("measured").each(cases):
            path = FILLED / f"{name}.onnx"
            if is_complete(path):
                rows.append(_row(name, _checked(name, path, entry["cases"][:_CASES], wrong)))
    shapes, predicted, by_formula, nodes, equal = (sum(int(row[k] or 0) for row in rows) for k in range(1, 6))
    return Page(
        "measured",
        "Predicted and measured bytes",
        f"""Random graphs of {_NODES} nodes and the models of the corpus, planned, verified bit by bit against
        the original, then run on ONNX Runtime's CPU provider under its memory profiler.""",
        (
            Finding("shapes whose measured peak is the predicted one", f"{predicted} of {shapes}", "all",
                    predicted == shapes),
            Finding("shapes whose measured peak is that of the formula", f"{by_formula} of {shapes}", "all",
                    by_formula == shapes),
            Finding("nodes after which bytes are as predicted", f"{equal:,} of {nodes:,}", "all",
                    equal == nodes),
        ),
        (
            Table(
                "measured",
                "Peaks and nodes",
                ("models", "shapes", "peaks as predicted", "peaks by formula", "nodes", "nodes as predicted"),
                tuple(rows),
                """as predicted: by the plan of the written file, all nodes included; by formula: by what
                `optimize` said of all shapes before anything ran.""",
            ),
        ),
        wrong=tuple(wrong),
    )  # fmt: skip


def _checked(name: str, model: Any, shapes: Sequence[Mapping[str, int]], wrong: list[str]) -> list[Check]:
    try:
        found = check(model, shapes, _FEW)
    except SymmemError as error:
        wrong.append(f"{name}: {error}")
        return []
    for shape, one in zip(shapes, found, strict=True):
        if not one.holds:
            words = ", ".join(f"{k}={v}" for k, v in shape.items())
            wrong.append(
                f"{name} at {words}: {one.equal} of {one.nodes} nodes equal; by formula {one.formula}, "
                f"predicted {one.predicted}, measured {one.measured}"
            )
    return list(found)


def _row(name: str, found: Sequence[Check]) -> tuple[Cell, ...]:
    return (
        name, len(found), sum(c.as_predicted for c in found), sum(c.by_formula for c in found),
        sum(c.nodes for c in found), sum(c.equal for c in found),
    )  # fmt: skip
