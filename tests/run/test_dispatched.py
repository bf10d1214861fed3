"""Models with several orders, from `optimize` to the run: predicted, measured, and which version runs."""

from dataclasses import replace

import numpy as np
import onnx
import pytest

from models.build import build
from models.random_graph import build_random_graph
from onnx_symmem import api
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.expression import Expr, maximum
from onnx_symmem.graph.load import load_model
from onnx_symmem.memory.execution_order import priority_order
from onnx_symmem.memory.peak import peak, peak_of
from onnx_symmem.memory.plan import prepare
from onnx_symmem.memory.profile import profile
from onnx_symmem.memory.sizes import from_written, value_sizes
from onnx_symmem.order.dispatch import DispatchLimits
from onnx_symmem.order.limits import SearchLimits, within_budget
from onnx_symmem.remat.expansion import expand
from onnx_symmem.remat.schedule import Step, never_again, schedule_of
from onnx_symmem.report.memory import memory_report
from onnx_symmem.rewrite.choice import LIMIT
from onnx_symmem.rewrite.version_record import versions_of
from onnx_symmem.run import dispatched
from onnx_symmem.run.at_load import keys_at_load
from onnx_symmem.run.branches import branches_of
from onnx_symmem.run.measure import measure
from onnx_symmem.run.optimized import OptimizedModel, OptimizeOptions
from onnx_symmem.run.pipeline import optimize_model
from onnx_symmem.run.written import most_above
from onnx_symmem.shapes.engine import infer_shapes
from tests.rewrite.test_versions import Emitted
from tests.run.towers import towers

TALL = {f"n{k}": (8, None) for k in range(3)}  # towers so low that deciding shows have one order


@pytest.fixture(scope="module")
def two() -> OptimizedModel:
    return optimize_model(towers(2), None, {"n0": TALL["n0"], "n1": TALL["n1"]})


@pytest.fixture(scope="module")
def three() -> OptimizedModel:
    return optimize_model(towers(3), None, TALL)


def test_each_region_runs_its_order_as_predicted(two):
    assert two.never_worse == "dispatched"
    assert len(two.dispatch.versions) == 2
    ran = set()
    for n0, n1 in [(100, 100), (300, 150), (150, 300), (500, 20), (8, 8), (9, 8), (8, 9)]:
        at = {"n0": n0, "n1": n1}
        found = measure(two.proto, at, runs=1, latency_runs=0)
        assert found.nodes_equal == 1
        assert found.version == two.dispatch.version_at(at)
        assert found.versions == 2
        assert found.runs[0].requested_peak == found.predicted_peak
        assert found.predicted_peak == two.after.at(at)
        # Never above what would have run, but for the bytes that deciding takes.
        assert found.predicted_peak <= two.choice.before.at(at) + two.dispatch.overhead
        ran.add(found.version)
    assert ran == {0, 1}
    better = max(
        two.choice.after.at(at) / two.after.at(at)
        for at in ({"n0": 2000, "n1": 1000}, {"n0": 1000, "n1": 2000})
    )
    assert better > 1.05


def test_every_version_is_verified(two, three):
    for found in (two, three):
        shapes = [v.shape for v in found.verified]
        assert all(v.equal for v in found.verified)
        ran = {found.dispatch.version_at(shape) for shape in shapes}
        assert ran == set(range(len(found.dispatch.versions)))


def test_three_orders(three):
    count = len(three.dispatch.versions)
    assert count >= 3
    seen = set()
    for n in [
        (50, 20, 10),
        (10, 50, 20),
        (20, 10, 50),
        (50, 50, 50),
        (10, 20, 50),
        (20, 50, 10),
        (50, 10, 20),
    ]:
        at = dict(zip(("n0", "n1", "n2"), n, strict=True))
        found = measure(three.proto, at, runs=1, latency_runs=0)
        assert found.nodes_equal == 1
        assert found.version == three.dispatch.version_at(at)
        seen.add(found.version)
    assert len(seen) >= 2


def test_figures_say_what_runs_where(two, tmp_path):
    result = api.optimize(towers(2), tmp_path / "out.onnx", domain={"n0": TALL["n0"], "n1": TALL["n1"]})
    document = result.to_json()
    assert document["never_worse"] == "dispatched"
    assert len(document["versions"]) == 2
    assert document["overhead_bytes"] == two.dispatch.overhead == 2 * 8 + 1  # zeros, and a condition
    for k, sample in enumerate(document["peak"]["after"]["at"]):
        assert sum(k in v["runs_at"] for v in document["versions"]) == 1
        least = min(v["peak"]["at"][k]["bytes"] for v in document["versions"])
        assert sample["bytes"] == least <= document["peak"]["before"]["at"][k]["bytes"] + 17
    about = versions_of(onnx.load(tmp_path / "out.onnx"))
    assert [v["order"] for v in about["versions"]] == [v["name"] for v in document["versions"]]


def test_without_dispatch_one_order_is_written():
    found = optimize_model(towers(2), None, options=OptimizeOptions(dispatch=False, verify=False))
    assert found.dispatch is None
    assert found.never_worse == "proved"
    assert "If" not in {n.op_type for n in found.proto.graph.node}
    assert found.after is found.choice.after


def test_a_domain_where_one_order_is_best_has_one():
    found = optimize_model(towers(2), None, {"n0": (1, 8), "n1": (1000, 2000)}, OptimizeOptions(verify=False))
    assert found.dispatch is None


def _profile(proto: onnx.ModelProto):
    model = load_model(proto)
    shapes = infer_shapes(model.view())
    prepared = prepare(shapes.graph.view, keys_at_load(model, shapes.graph))
    order = tuple(range(len(shapes.graph.view.nodes)))
    return branches_of(model, shapes), profile(prepared.plan(order), value_sizes(shapes.graph))


def test_the_peak_at_a_shape_is_that_of_the_version_that_runs(two):
    branches, found = _profile(two.proto)
    assert found.label == "bound"
    assert (branches.count, branches.has_limit) == (2, False)
    for n0, n1 in [(300, 150), (150, 300), (64, 64)]:
        at = {"n0": n0, "n1": n1}
        version = branches.version_at(at)
        assert branches.label(found, version) == "exact"
        assert max(m.evaluate(at) for m in branches.members(found, version)) == two.after.at(at)
    assert branches_of(load_model(towers(2)), infer_shapes(load_model(towers(2)).view())) is None


def _lowered(view, keys, sizes, shape, schedule):
    """A schedule of a lower peak, by recomputing one value after the peak; None where none was found."""

    def at_peak(schedule):
        expansion = expand(view, schedule)
        order = priority_order(expansion.view())
        found = profile(prepare(expansion.view(), expansion.keys(keys)).plan(order), expansion.sizes(sizes))
        rows = found.in_use.evaluate([shape])[:, 0]
        return int(rows.max()), expansion, found, int(rows.argmax())

    least, expansion, found, row = at_peak(schedule)
    where = expansion.steps[found.moments[row].node]
    now = next(k for k, s in enumerate(schedule) if s.index == where.index)
    live = {slot.name for slot in found.live(row) if slot.scope == "activation"}
    for value in (v for v in view.values if v.name in live and v.kind == "node"):
        readers = [
            k for k, s in enumerate(schedule) if k > now and value.index in view.nodes[s.index].reads()
        ]
        if readers and not never_again(view, view.nodes[value.producer]):
            tried = (*schedule[: readers[0]], Step("run", value.producer), *schedule[readers[0] :])
            if at_peak(tried)[0] < least:
                return tried
    return None


def test_levels_of_recomputes_are_chosen_by_the_limit():
    proto = build("transformer_train", layers=2)
    at = {"batch": 2, "seq": 64}
    view = load_model(proto).view().graph
    shapes = infer_shapes(load_model(proto).view())
    keys, sizes = from_written(shapes.graph), value_sizes(shapes.graph)
    levels = [schedule_of(priority_order(view))]
    while len(levels) < 3:
        schedule = levels[-1]
        for _ in range(4):
            schedule = _lowered(view, keys, sizes, at, schedule) or schedule
        levels.append(schedule)
    emitted = Emitted(proto, levels, lifted=False)
    branches, found = _profile(emitted.proto)
    peaks = [p.at(at) + emitted.overhead for p in emitted.peaks]
    assert peaks[0] > peaks[1] > peaks[2]
    assert branches.has_limit
    for limit, version in (
        (peaks[0], 0), (peaks[0] - 1, 1), (peaks[1], 1), (peaks[1] - 1, 2), (peaks[2], 2), (0, 2),
    ):  # fmt: skip
        assert branches.version_at(at, limit) == version
    for version in range(3):
        measured = measure(emitted.limited(peaks[version]), at, runs=1, latency_runs=0)
        assert measured.version == version
        assert measured.nodes_equal == 1
        own = max(m.evaluate(at) for m in branches.members(found, version))
        assert own == measured.runs[0].requested_peak <= peaks[version]
    # The limit may also be fed.
    fed = measure(emitted.proto, at, overrides={LIMIT: np.array(0, np.int64)}, runs=1, latency_runs=0)
    assert fed.version == 2
    assert fed.nodes_equal == 1


def test_a_model_of_versions_can_be_optimised_again(three):
    """Its outputs are no longer disguised, and so allocated early, which prediction knows."""
    options = OptimizeOptions(search=within_budget(0, SearchLimits()))
    again = optimize_model(three.proto, None, options=options)
    assert any("holds several orders already" in notice for notice in again.notices)
    assert not any("already" in notice for notice in three.notices)
    for at in ({"n0": 50, "n1": 20, "n2": 10}, {"n0": 10, "n1": 20, "n2": 50}):
        found = measure(again.proto, at, runs=1, latency_runs=0)
        assert found.nodes_equal == 1
        assert found.predicted_peak == found.runs[0].requested_peak
        assert found.version == three.dispatch.version_at(at)


def test_deciding_takes_few_nodes(two):
    """A guard and one If around the branches: some 15 microseconds on an idle core, all on scalars."""
    ops = [node.op_type for node in two.proto.graph.node]
    assert ops.count("If") == 1
    assert len(ops) <= 40


def test_report_takes_the_version_that_runs(two, tmp_path):
    onnx.save(two.proto, tmp_path / "two.onnx")
    at = [{"n0": 300, "n1": 150}, {"n0": 150, "n1": 300}]
    report = memory_report(tmp_path / "two.onnx", at=at)
    assert [m.version for m in report.moments] == [two.dispatch.version_at(shape) for shape in at]
    assert [m.peak for m in report.moments] == [two.after.at(shape) for shape in at]
    assert {v.peak.label for v in report.versions} == {"exact"}
    assert [v.runs_at for v in report.versions] in ([(0,), (1,)], [(1,), (0,)])
    for moment, (_, bound) in zip(report.moments, report.peak.at, strict=True):
        own = report.versions[moment.version].peak.at
        assert moment.peak == dict_of(own)[tuple(moment.shape.items())] <= bound
        assert max(moment.timeline) == moment.peak
        assert sum(t.bytes for t in moment.tensors) == moment.peak


def dict_of(pairs):
    return {tuple(shape.items()): size for shape, size in pairs}


def test_one_order_stays_where_deciding_shows():
    found = optimize_model(towers(2), None, options=OptimizeOptions(verify=False))
    assert found.dispatch is None
    assert found.never_worse == "proved"
    why = "deciding which to run can take 17 bytes more than what would have run, which takes 2,304 at "
    assert f"one order is written, though no order is good at all shapes: {why}n0=1, n1=1" in found.notices


def test_one_order_stays_where_several_are_worse_at_worst(monkeypatch):
    monkeypatch.setattr(dispatched, "DispatchLimits", lambda: DispatchLimits(overhead=10))
    found = optimize_model(build_random_graph(24, 6), None, options=OptimizeOptions(verify=False))
    assert found.dispatch is None
    assert any("with what deciding takes, the worst of" in notice for notice in found.notices)


@pytest.mark.parametrize(("seed", "overhead"), [(6, 108), (67, 0), (99, 228), (109, 1)])
def test_the_formula_is_what_runs_take_from_the_least_shape_on(seed, overhead, monkeypatch):
    """Also where the guard takes most, and right where another version is the one that runs."""
    monkeypatch.setattr(dispatched, "DispatchLimits", lambda: DispatchLimits(overhead=10))
    monkeypatch.setattr(
        dispatched, "no_worse_than_one", lambda *_: True
    )  # small graphs, where deciding shows
    search = replace(SearchLimits(), improved=1, rounds=1)
    found = optimize_model(build_random_graph(24, seed), None, options=OptimizeOptions(search=search))
    assert found.never_worse == "dispatched"
    assert found.dispatch.overhead == overhead
    near = [{"n": n, "m": m} for n in range(1, 9) for m in range(1, 9)]
    all_over = [*near, *found.shapes.domain.samples(symbols=("n", "m"))]
    above = [found.after.at(at) - found.choice.before.at(at) for at in all_over]
    assert max(0, *above) == overhead
    runs = {(at["n"], at["m"]): found.dispatch.version_at(at) for at in near}
    small = [(at["n"], at["m"]) for at in all_over if at["n"] * at["m"] <= 1 << 14]
    tried = [(1, 1), (2, 1), (3, 5)]
    for version in range(len(found.dispatch.versions)):
        tried += [s for s in small if found.dispatch.version_at({"n": s[0], "m": s[1]}) == version][:1]
    tried += [
        edge for (n, m), v in runs.items() if runs.get((n + 1, m), v) != v for edge in ((n, m), (n + 1, m))
    ][:4]
    tried += [
        edge for (n, m), v in runs.items() if runs.get((n, m + 1), v) != v for edge in ((n, m), (n, m + 1))
    ][:4]
    versions = set()
    for n, m in dict.fromkeys(tried):
        at = {"n": n, "m": m}
        ran = measure(found.proto, at, runs=1, latency_runs=0)
        assert ran.nodes_equal == 1
        assert ran.runs[0].requested_peak == ran.predicted_peak == found.after.at(at)
        assert ran.version == found.dispatch.version_at(at)
        assert ran.runs[0].requested_peak <= found.choice.before.at(at) + overhead
        versions.add(ran.version)
    assert len(versions) > 1


def test_what_the_first_may_be_above_is_part_of_what_is_proved(two, monkeypatch):
    """Where nothing less is proved of the file, it is that, and what deciding adds to every version."""
    monkeypatch.setattr(dispatched, "most_above", lambda plans, others, domain, samples, known: known)
    base, limits = load_model(towers(2)), DispatchLimits(overhead=10)
    shapes = infer_shapes(base.view(), two.shapes.domain)
    said = []
    for above in (0, 10_000):
        planned = replace(two.dispatch, overhead=above, guard=0)
        _, written, why = dispatched.dispatched_model(
            base, shapes, planned, two.choice.before, two.samples, limits=limits
        )
        assert why == ()
        said.append(written.overhead)
    bound = 2 * 8 + 1  # zeros, and a condition
    assert said == [bound, bound + 10_000]
    # Before any version starts deciding takes what guards do, which here is more than what would have run.
    tiny = peak_of([Expr.const(1)], shapes.domain)
    _, written, _ = dispatched.dispatched_model(base, shapes, two.dispatch, tiny, (), limits=limits)
    assert written.overhead > bound + two.dispatch.overhead


def test_a_file_is_read_again_unless_its_graph_is_the_one_that_was_read(monkeypatch):
    base, limits = load_model(towers(2)), DispatchLimits(overhead=10)
    options = OptimizeOptions(ort_level="none", verify=False)
    two = optimize_model(base, None, {"n0": TALL["n0"], "n1": TALL["n1"]}, options)
    shapes = infer_shapes(base.view(), two.shapes.domain)
    read = []
    usual = dispatched.written_peaks
    monkeypatch.setattr(dispatched, "written_peaks", lambda m, *args: read.append(m.proto) or usual(m, *args))
    alone = tuple(replace(v, peak=peak(v.candidate.profile, shapes.domain)) for v in two.dispatch.versions)
    made = []
    for versions in (alone, two.dispatch.versions):  # what each takes by itself, and in a file
        planned = replace(two.dispatch, versions=versions, guard=0)
        proto, written, _ = dispatched.dispatched_model(
            base, shapes, planned, two.choice.before, two.samples, limits=limits
        )
        made.append((proto.graph.SerializeToString(deterministic=True), written.guard, len(read)))
    assert [count for _, _, count in made] == [1, 3]
    assert made[0][:2] == made[1][:2]
    assert read[0].graph.SerializeToString(deterministic=True) == made[0][0]


def test_how_far_the_least_of_versions_is_above_is_less_than_of_each():
    n = Expr.symbol("n")
    domain, samples = Domain({"n": SymbolRange(1, 100)}), [{"n": 1}, {"n": 100}]
    before = [maximum(n, 50)]
    plans = [[n + 3], [Expr.const(60)]]
    assert most_above(plans, before, domain, samples, 1000) == 3
    assert most_above(plans[:1], before, domain, samples, 1000) == 3
    assert most_above(plans[1:], before, domain, samples, 1000) == 10
    plans = [[2 * n], [50 + (100 - n)]]
    above = max(min(2 * k, 150 - k) - max(k, 50) for k in range(1, 101))
    assert most_above(plans, before, domain, samples, 1000) == above == 50
    assert most_above(plans[:1], before, domain, samples, 1000) == 100
    # What is proved already stays where no less is.
    assert most_above(plans[:1], before, domain, samples, 7) == 7
