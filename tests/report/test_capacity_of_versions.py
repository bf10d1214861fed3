"""`fit` and `check` of models with several versions: the one that runs counts, as a run confirms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from models.build import build
from onnx_symmem.api import check, fit, optimize
from onnx_symmem.errors import UnsupportedModel
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.text import parse
from onnx_symmem.memory.capacity import Demand, largest_size
from onnx_symmem.order.limits import SearchLimits, within_budget
from onnx_symmem.report.demand import ModelDemand, model_demand
from onnx_symmem.rewrite.choice import LIMIT
from onnx_symmem.run.measure import measure
from tests.run.towers import towers

QUICK = within_budget(0.5, SearchLimits())
DIMS = {"batch": (1, 8), "seq": (1, 128)}
ROWS = {"n0": (8, 2000), "n1": (8, 2000)}  # lower towers have one order only


@pytest.fixture(scope="module")
def levelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("levels") / "m.onnx"
    proto = build("transformer_train", layers=1, width=64)
    optimize(proto, out, domain=DIMS, levels=2, search=QUICK, verify=False)
    return out


@pytest.fixture(scope="module")
def dispatched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dispatch") / "m.onnx"
    found = optimize(towers(), out, domain=ROWS, search=QUICK, verify=False)
    assert len(found.figures.versions) > 1
    return out


def activations(path: Path, domain: Mapping[str, tuple[int, int]], limit: int | None = None) -> ModelDemand:
    return model_demand(path, domain, counts=("activations",), limit=limit)


def test_the_limit_that_chooses_the_level_is_said(levelled: Path, tmp_path: Path) -> None:
    """The given one, or the file's own; that there is none where the first level always runs."""
    at = {"batch": 4, "seq": 128}
    free = check(levelled, 1 << 30, at=at, domain=DIMS)
    given = check(levelled, 1 << 30, at=at, domain=DIMS, memory_limit=3 << 20)
    assert free.checks[0].to_json()["memory_limit"] is None
    assert "sets no memory limit, so its first level runs" in free.checks[0].notices[0]
    assert given.checks[0].to_json()["memory_limit"] == 3 << 20
    assert given.checks[0].notices == ()
    out = tmp_path / "m.onnx"
    optimize(
        build("transformer_train", layers=1, width=64), out, domain=DIMS, levels=1, memory_limit=9 << 20,
        search=QUICK, verify=False,
    )  # fmt: skip
    found = fit(out, 1 << 30, ["batch"], against=levelled, at={"seq": 128}, domain=DIMS)
    assert [m["memory_limit"] for m in found.to_json()["models"]] == [9 << 20, None]


def test_the_answer_is_what_the_level_that_runs_takes(levelled: Path) -> None:
    """Under every limit and budget, against every size, and against runs at the answer and one above."""
    peaks = [activations(levelled, DIMS, limit).demand.at({"batch": 4, "seq": 128}) for limit in (0, 1 << 60)]
    assert peaks[0] < peaks[1]
    ran = set()
    for limit in (0, 3 << 20, 1 << 60):
        demand = activations(levelled, DIMS, limit).demand
        assert demand.choice is not None
        taken = [demand.at({"batch": batch, "seq": 128}) for batch in range(1, 9)]
        for budget in (peaks[0], peaks[1], (peaks[0] + peaks[1]) // 2):
            found = fit(
                levelled, budget, "batch", at={"seq": 128}, domain=DIMS, counts=("activations",),
                memory_limit=limit,
            ).rows[0].found[0]  # fmt: skip
            wanted = max((k + 1 for k, needed in enumerate(taken) if needed <= budget), default=None)
            assert found.size == wanted
            if wanted is not None and wanted < 8:
                assert found.needed == taken[wanted - 1] <= budget < found.next_needed == taken[wanted]
        fed = {LIMIT: np.array(limit, np.int64)}
        for batch in (2, 5):
            run = measure(
                levelled, {"batch": batch, "seq": 128}, overrides=fed, runs=1, latency_runs=0
            )  # fmt: skip
            assert run.runs[0].requested_peak == run.predicted_peak == taken[batch - 1]
            ran.add(run.version)
    assert len(ran) > 1


def test_the_answer_is_what_the_order_that_runs_takes(dispatched: Path) -> None:
    model = activations(dispatched, ROWS)
    demand = model.demand
    assert model.label == "exact"
    above = 0
    for other in (20, 300):
        taken = [demand.at({"n0": n, "n1": other}) for n in range(8, 801)]
        bound = [max(m.evaluate({"n0": n, "n1": other}) for m in demand.members) for n in range(8, 801)]
        above += sum(a < b for a, b in zip(taken, bound, strict=True))
        for budget in (taken[180], taken[420] - 1):
            found = largest_size(demand, "n0", {"n1": other}, budget)
            assert found.size == max(n for n, needed in enumerate(taken, 8) if needed <= budget)
            for size, needed in ((found.size, found.needed), (found.next_size, found.next_needed)):
                if size is not None:
                    run = measure(dispatched, {"n0": size, "n1": other}, runs=1, latency_runs=0)
                    assert run.runs[0].requested_peak == run.predicted_peak == needed
    assert above  # what runs is not what takes most


def test_a_budget_is_checked_for_what_runs(dispatched: Path, levelled: Path) -> None:
    at = {"n0": 200, "n1": 60}
    needed = activations(dispatched, ROWS).demand.at(at)
    kept = check(dispatched, needed, at=at, domain=ROWS, counts=("activations",)).checks[0]
    assert kept.holds
    assert kept.needed == ((at, needed),)
    assert not check(dispatched, needed - 1, at=at, domain=ROWS, counts=("activations",)).holds
    least = activations(levelled, DIMS, 0).demand
    most = max(least.at({"batch": b, "seq": s}) for b in (1, 8) for s in (1, 128))
    refuted = check(levelled, most - 1, domain=DIMS, counts=("activations",), memory_limit=0).checks[0]
    assert not refuted.holds
    assert refuted.witness_needed is not None
    assert refuted.witness_needed == least.at(refuted.witness or {}) > most - 1
    assert check(levelled, 1 << 40, domain=DIMS).holds


def chosen(*versions: str, switch: int, domain: Domain | None = None) -> Demand:
    """A demand of two versions, of which the second runs from `switch` on."""
    members = tuple((parse(text),) for text in versions)
    whole = tuple(m for version in members for m in version)
    return Demand(whole, domain or Domain(), members, lambda shape: int(shape["n"] >= switch))


def test_what_fits_may_lie_above_what_does_not() -> None:
    found = largest_size(chosen("100*n", "10*n", switch=50), "n", {}, 1000)
    assert (found.size, found.needed, found.next_size, found.next_needed) == (100, 1000, 101, 1010)
    never = chosen("100*n", "10*n", switch=500)
    assert largest_size(never, "n", {}, 1000).size == 10
    assert largest_size(never, "n", {}, 50).size is None
    same = largest_size(replace(never, versions=never.versions[:1] * 2), "n", {}, 1000)
    assert (same.size, same.next_needed) == (10, 1100)


def test_a_version_that_always_fits_needs_an_end() -> None:
    demand = chosen("100*n", "50", switch=50)
    with pytest.raises(UnsupportedModel, match="fits at any 'n': give its largest size"):
        largest_size(demand, "n", {}, 1000)
    ended = replace(demand, domain=Domain({"n": SymbolRange(1, 400)}))
    found = largest_size(ended, "n", {}, 1000)
    assert (found.size, found.next_size) == (400, None)


def test_ladders_of_a_second_dim_are_exact_as_well(dispatched: Path) -> None:
    demand = activations(dispatched, ROWS).demand
    budget = demand.at({"n0": 120, "n1": 120})
    rows = fit(dispatched, budget, "n0,n1", domain=ROWS, counts=("activations",)).rows
    assert len(rows) > 3
    for row in rows:
        (found,) = row.found
        fits = [n for n in range(8, 801) if demand.at({**row.fixed, "n0": n}) <= budget]
        assert found.size == max(fits, default=None)
    sizes = [row.found[0].size or 0 for row in rows]
    assert all(a >= b for a, b in pairwise(sizes))
