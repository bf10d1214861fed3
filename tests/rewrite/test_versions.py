"""Models of several versions: the branch taken runs as predicted, to the byte, and gives the same outputs."""

import itertools
import json
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.build import MODELS, build
from onnx_symmem.errors import UnsupportedModel, UsageError
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.graph.load import load_model
from onnx_symmem.memory.execution_order import default_order, priority_order
from onnx_symmem.memory.peak import Peak, peak, peak_of
from onnx_symmem.memory.plan import prepare
from onnx_symmem.memory.profile import MemoryProfile, profile
from onnx_symmem.memory.sizes import from_written, value_sizes
from onnx_symmem.order.candidates import peaks_at
from onnx_symmem.remat.expansion import expand
from onnx_symmem.remat.levels import LevelOptions, plan_levels
from onnx_symmem.remat.schedule import Schedule, schedule_of
from onnx_symmem.rewrite.reorder import execution_order_of
from onnx_symmem.rewrite.version_record import versions_of
from onnx_symmem.rewrite.versions import NO_LIMIT, Version, emit_versions
from onnx_symmem.run.branches import branches_of
from onnx_symmem.run.measure import measure
from onnx_symmem.run.session import create_session, kept, kept_for, run_session, shipped
from onnx_symmem.shapes.engine import infer_shapes
from tests.memory.runtime import info, model, number
from tests.remat.repeats import with_repeats
from tests.remat.training import Ground

LIMIT = "symmem_memory_limit"
# Inside an If inside an If, ONNX Runtime packs no weights: other bits than where it does.
_STEP = 1 << 40
UNPACKED = replace(kept(), intra_op_threads=1, config=(("session.disable_prepacking", "1"),))


class Emitted:
    """A model with its schedules as versions, and what each takes by itself."""

    def __init__(
        self, proto: onnx.ModelProto, schedules: list[Schedule], policy="fits", domain=None, lifted=True,
        **options,
    ):  # fmt: skip
        self.original = proto
        view = load_model(proto).view()
        self.shapes = infer_shapes(view, domain)
        sizes, keys = value_sizes(self.shapes.graph), from_written(self.shapes.graph)
        self.profiles: list[MemoryProfile] = []
        self.peaks: list[Peak] = []
        self.said: list[Peak] = []  # what the guard is told
        versions = []
        for place, schedule in enumerate(schedules, start=1):
            expansion = expand(self.shapes.graph.view, schedule, view.opsets)
            rule = default_order if options.get("rule") == "default" else priority_order
            order = range(len(expansion.steps)) if rule is default_order else rule(expansion.view())
            prepared = prepare(expansion.view(), expansion.keys(keys))
            self.profiles.append(profile(prepared.plan(order), expansion.sizes(sizes)))
            found = peak(self.profiles[-1], self.shapes.domain)
            self.peaks.append(found)
            # Repeats drawn at random free nothing; to have each run, later versions are said to take less.
            lift = (len(schedules) - place) * _STEP if lifted and policy == "fits" else 0
            self.said.append(peak_of([m + lift for m in found.members], self.shapes.domain))
            versions.append(Version(expansion, self.said[-1].members))
        self.versions = versions
        self.proto = emit_versions(proto, self.shapes, versions, policy, **options)

    @property
    def overhead(self) -> int:
        return versions_of(self.proto)["overhead_bytes"]

    def limited(self, limit: int) -> onnx.ModelProto:
        """The model with another default limit."""
        result = onnx.ModelProto()
        result.CopyFrom(self.proto)
        tensor = next(t for t in result.graph.initializer if t.name == LIMIT)
        tensor.CopyFrom(numpy_helper.from_array(np.array(limit, np.int64), LIMIT))
        return result

    def assert_runs(self, proto: onnx.ModelProto, at: Mapping[str, int], version: int) -> None:
        """The version runs at the shape, every node takes what is predicted, and all that was promised."""
        found = measure(proto, at, runs=1, latency_runs=0)
        assert found.prediction.why_not == ""
        assert found.mismatches == ()
        assert found.nodes_equal == 1
        assert not found.wrong_dims
        ran = {n.node.rpartition(" / ")[0] for n in found.nodes if " / " in n.node}
        path = "else_branch / " * version
        assert any(name.count("else_branch") == min(version, len(self.peaks) - 1) for name in ran), path
        took = found.runs[0].requested_peak
        alone = self.peaks[version].at(at)
        assert took == found.predicted_peak
        assert alone <= took <= alone + self.overhead

    def feeds(self, at, draw_inputs, fills=None) -> dict[str, np.ndarray]:
        return draw_inputs(self.original.graph.input, at, fills)


def _outputs(proto, feeds, settings=None):
    settings = settings or replace(kept_for(load_model(proto)), intra_op_threads=1)
    return run_session(create_session(proto, settings), feeds)


def _same(a, b) -> bool:
    return all(x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))


def _small(name: str) -> onnx.ModelProto:
    options = {"transformer_train": {"layers": 1}, "unet": {"levels": 2, "blocks": 1}}
    return build(name, **options.get(name, {}))


def _with_levels(name: str, count: int = 3, **options) -> Emitted:
    proto = _small(name)
    view = load_model(proto).view().graph
    schedules = [with_repeats(view, 8 * k, k) for k in range(count)]
    return Emitted(proto, schedules, **options)


@pytest.mark.parametrize("name", ["transformer_train", "unet", "mlp_train", "decoder"])
def test_every_level_of_real_models(name, draw_inputs):
    emitted = _with_levels(name)
    onnx.checker.check_model(emitted.proto)
    fills = {name: ("randint", *ends) for name, ends in MODELS[name].ranges.items()}
    model_of_levels = load_model(emitted.proto)
    branches = branches_of(model_of_levels, infer_shapes(model_of_levels.view()))
    for at in MODELS[name].shapes[:2]:
        peaks = [p.at(at) + emitted.overhead for p in emitted.said]
        # The limit is exactly what the guard thinks a level takes, or one byte less.
        for limit in sorted({NO_LIMIT, 0, *peaks, *(p - 1 for p in peaks)}):
            version = next((k for k, p in enumerate(peaks) if p <= limit), 2)
            assert branches.version_at(at, limit) == version
            if at["batch"] > 1 and limit in (NO_LIMIT, peaks[1], 0):
                emitted.assert_runs(emitted.limited(limit), at, version)
        feeds = emitted.feeds(at, draw_inputs, fills)
        session = create_session(emitted.proto, UNPACKED)
        original = _outputs(emitted.original, feeds, UNPACKED)
        for limit in (NO_LIMIT, 0, peaks[1]):
            # The limit is an input that may be left out.
            given = {} if limit == NO_LIMIT else {LIMIT: np.array(limit, np.int64)}
            assert _same(original, run_session(session, {**feeds, **given}))
        assert _same(_outputs(emitted.original, feeds), _outputs(emitted.proto, feeds))


def test_the_default_session_gives_the_same_outputs(draw_inputs):
    emitted = _with_levels("transformer_train")
    at = {"batch": 3, "seq": 17}
    feeds = emitted.feeds(at, draw_inputs, {"labels": ("randint", 0, 100)})
    expected = _outputs(emitted.original, feeds, shipped())
    for limit in (NO_LIMIT, 0):
        for a, b in zip(expected, _outputs(emitted.limited(limit), feeds, shipped()), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_weights_are_there_once_and_bytes_are_always_the_same():
    emitted = _with_levels("mlp_train")
    before = sum(t.ByteSize() for t in emitted.original.graph.initializer)
    after = sum(t.ByteSize() for t in emitted.proto.graph.initializer)
    assert after < before + 20_000
    branches = [
        a.g for n in emitted.proto.graph.node for a in n.attribute if a.type == onnx.AttributeProto.GRAPH
    ]
    assert not any(g.initializer for g in branches)
    again = _with_levels("mlp_train")
    texts = [e.proto.SerializeToString(deterministic=True) for e in (emitted, again)]
    assert texts[0] == texts[1]


def _crossing():
    """Two orders, each best at some shapes: what is larger, a or b, should come first."""
    nodes = [
        helper.make_node("Concat", ["x"] * 8, ["a"], name="a", axis=0),
        helper.make_node("ReduceSum", ["a", "first"], ["a1"], name="a1", keepdims=1),
        helper.make_node("Concat", ["y"] * 8, ["b"], name="b", axis=0),
        helper.make_node("ReduceSum", ["b", "first"], ["b1"], name="b1", keepdims=1),
        helper.make_node("Concat", ["a1", "b1", "k"], ["c"], name="c", axis=1),
        helper.make_node("Relu", ["k"], ["d"], name="d"),
    ]
    outputs = [info("c", [1, "w"]), info("d", [1, 40])]
    weights = [number("first", [0]), number("k", np.ones((1, 40)), 1)]
    return model(nodes, [info("x", ["n", "m"]), info("y", ["m", "m"])], outputs, weights)


def _levels_of(name: str, at: Mapping[str, int]) -> tuple[onnx.ModelProto, list[Schedule]]:
    ground = Ground(_small(name))
    options = LevelOptions(levels=3, max_slowdown=1.5)
    levels = plan_levels(
        ground.shapes, ground.keys, ground.domain, ground.order, [at], options, opsets=ground.opsets
    )
    return _small(name), [level.schedule for level in levels]


@pytest.mark.parametrize(
    ("name", "large"),
    [("crossing", {}), ("transformer_train", {"batch": 4, "seq": 64}), ("mlp_train", {"batch": 4000})],
)
def test_where_none_fits_the_version_runs_that_takes_least_at_these_shapes(name, large):
    """By the bytes of every row of every plan at every shape of a grid, and never one that gains nothing."""
    if name == "crossing":
        orders = [(0, 1, 5, 2, 3, 4), (2, 3, 0, 1, 4, 5), (0, 1, 2, 3, 4, 5)]
        proto, schedules = _crossing(), [schedule_of(o) for o in orders]
    else:
        proto, schedules = _levels_of(name, large)
    emitted = Emitted(proto, schedules, lifted=False, counted=True)
    loaded = load_model(emitted.proto)
    branches = branches_of(loaded, infer_shapes(loaded.view()))
    symbols = emitted.shapes.input_symbols
    least = set()
    for sizes in itertools.product((1, 2, 3, 5, 8, 24, 64, 300), repeat=len(symbols)):
        at = dict(zip(symbols, sizes, strict=True))
        takes = [peaks_at(found, [at])[0] for found in emitted.profiles]
        for limit in {0, *takes, *(p - 1 for p in takes)}:
            fitting = [k for k, p in enumerate(takes) if p <= limit]
            runs = branches.version_at(at, limit)
            assert runs == (fitting[0] if fitting else takes.index(min(takes)))
            assert all(takes[runs] < p for p in takes[:runs])
        least.add(takes.index(min(takes)))
    assert len(least) > 1


def test_least_runs_the_least_and_the_first_outside():
    orders = [(0, 1, 2, 3, 4, 5), (2, 3, 0, 1, 4, 5)]
    domain = Domain({"n": SymbolRange(1, 60)})
    emitted = Emitted(_crossing(), [schedule_of(o) for o in orders], "least", domain)
    a, b = emitted.peaks
    assert LIMIT not in {i.name for i in emitted.proto.graph.input}
    seen = set()
    for n, m in [(1, 1), (7, 3), (3, 7), (50, 51), (51, 50), (40, 2), (61, 1), (200, 3)]:
        at = {"n": n, "m": m}
        version = int(b.at(at) < a.at(at)) if n <= 60 else 0
        seen.add(version)
        emitted.assert_runs(emitted.proto, at, version)
    assert seen == {0, 1}


def test_zero_sizes_and_other_shapes_outside_run_the_safest():
    emitted = _with_levels("mlp_train", 2)
    feeds = {"x": np.zeros((0, 64), np.float32), "labels": np.zeros(0, np.int64)}
    feeds = {
        i.name: np.zeros([0 if d.dim_param else d.dim_value for d in i.type.tensor_type.shape.dim],
                         helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type))
        for i in emitted.original.graph.input
    }  # fmt: skip
    assert _same(_outputs(emitted.original, feeds), _outputs(emitted.proto, feeds))


def _static():
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="a"),
        helper.make_node("Exp", ["a"], ["b"], name="b"),
        helper.make_node("Add", ["a", "b"], ["y"], name="y"),
    ]
    return model(nodes, [info("x", [4, 5])], [info("y", [4, 5])])


def test_a_static_model_gets_the_one_level_that_fits_without_if():
    relu, exp, add = schedule_of(range(3))
    schedules = [(relu, exp, add), (relu, exp, relu, add)]
    for limit, ops in ((None, ["Relu", "Exp", "Add"]), (0, ["Relu", "Exp", "Relu", "Add"])):
        emitted = Emitted(_static(), schedules, limit=limit)
        assert [n.op_type for n in emitted.proto.graph.node] == ops
        assert versions_of(emitted.proto)["only"] == (limit is not None)
        assert LIMIT not in {i.name for i in emitted.proto.graph.input}


def _odd_outputs():
    """Outputs that are an input, a weight, a Constant, read inside, large and static, and a scalar."""
    nodes = [
        helper.make_node("Constant", [], ["k"], name="k", value_floats=[1.0, 2.0, 3.0]),
        helper.make_node("Relu", ["x"], ["r"], name="r"),
        helper.make_node("Exp", ["r"], ["e"], name="e"),
        helper.make_node("MatMul", ["t", "r"], ["big"], name="big"),
        helper.make_node("Transpose", ["x"], ["t"], name="t"),
        helper.make_node("Mul", ["e", "w"], ["m"], name="m"),
        helper.make_node("ReduceSum", ["m"], ["loss"], name="loss", keepdims=0),
        helper.make_node("Add", ["r", "e"], ["sum"], name="sum"),
    ]
    nodes[3], nodes[4] = nodes[4], nodes[3]
    weights = [number("w", np.ones(20), 1)]
    outputs = [
        info("x", ["N", 20]), info("w", [20]), info("k", [3]), info("r", ["N", 20]), info("big", [20, 20]),
        info("loss", []), info("sum", ["N", 20]),
    ]  # fmt: skip
    return model(nodes, [info("x", ["N", 20])], outputs, weights)


@pytest.mark.parametrize("policy", ["fits", "least"])
def test_outputs_of_every_kind(policy):
    proto = _odd_outputs()
    constant, relu, exp, transpose, matmul, mul, loss, add = schedule_of(range(8))
    again = (constant, relu, exp, transpose, matmul, mul, loss, exp, add)
    emitted = Emitted(proto, [(constant, relu, exp, transpose, matmul, mul, loss, add), again], policy)
    onnx.checker.check_model(emitted.proto)
    feeds = {"x": np.random.default_rng(0).standard_normal((9, 20), np.float32)}
    for result in [emitted.proto] if policy == "least" else [emitted.limited(NO_LIMIT), emitted.limited(0)]:
        assert _same(_outputs(proto, feeds), _outputs(result, feeds))
    # The large output is made late: it must not be there from the start of the branch.
    assert emitted.overhead < 100
    assert any("hidden" in n.name for n in _branch(emitted.proto, 0).node)
    emitted.assert_runs(emitted.proto, {"N": 9}, 0)


def _branch(proto: onnx.ModelProto, version: int) -> onnx.GraphProto:
    node = proto.graph.node[-1]
    while version:
        version -= 1
        node = next(a.g for a in node.attribute if a.name == "else_branch").node[-1]
    return next(a.g for a in node.attribute if a.name == "then_branch")


def test_versions_follow_the_default_traversal_where_asked():
    orders = [(0, 1, 2, 3, 4, 5), (2, 3, 0, 1, 4, 5)]
    emitted = Emitted(_crossing(), [schedule_of(o) for o in orders], "least", rule="default")
    assert execution_order_of(emitted.proto) == "default"
    for at in ({"n": 3, "m": 70}, {"n": 70, "m": 3}, {"n": 5, "m": 5}):
        version = int(emitted.peaks[1].at(at) < emitted.peaks[0].at(at))
        emitted.assert_runs(emitted.proto, at, version)


def test_the_metadata_tells_what_there_is():
    emitted = _with_levels("mlp_train", 2, limit=10_000_000)
    found = versions_of(emitted.proto)
    json.dumps(found)
    assert (found["policy"], found["outside"]) == ("fits", 1)
    assert found["limit"] == {"input": LIMIT, "default": 10_000_000}
    assert [bool(v["recomputed"]) for v in found["versions"]] == [False, True]
    assert found["domain"]["ranges"] == {"batch": "1..inf"}
    assert all("batch" in v["peak"][0] for v in found["versions"])
    assert versions_of(emitted.original) is None


def test_what_cannot_be_written_is_refused():
    proto = _crossing()
    shapes = infer_shapes(load_model(proto).view())
    expansion = expand(shapes.graph.view, schedule_of(range(6)))
    version = Version(expansion, (shapes.graph.dims[0][0],))
    with pytest.raises(UsageError, match="policy 'most' is not known"):
        emit_versions(proto, shapes, [version], "most")
    with pytest.raises(UsageError, match="no version was given"):
        emit_versions(proto, shapes, [])
    other = infer_shapes(load_model(proto).view())
    with pytest.raises(UsageError, match="of another graph"):
        emit_versions(proto, other, [version])
    named = onnx.ModelProto()
    named.CopyFrom(proto)
    named.graph.input.append(helper.make_tensor_value_info(LIMIT, TensorProto.INT64, []))
    shapes = infer_shapes(load_model(named).view())
    expansion = expand(shapes.graph.view, schedule_of(range(6)))
    with pytest.raises(UnsupportedModel, match="has a value called"):
        emit_versions(named, shapes, [Version(expansion, (shapes.graph.dims[0][0],))] * 2)


def test_outputs_of_fused_and_scattering_operators_are_not_early_either():
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="r"),
        helper.make_node(
            "FusedMatMul", ["x", "r"], ["gradient"], name="gradient", domain="com.microsoft", transA=1
        ),
        helper.make_node("ReduceSum", ["r", "rows"], ["sum"], name="sum", keepdims=1),
        helper.make_node("ScatterND", ["table", "where", "sum"], ["scattered"], name="scattered"),
        helper.make_node("Exp", ["r"], ["y"], name="y"),
    ]
    outputs = [info("gradient", [20, 20]), info("scattered", [30, 20]), info("y", ["N", 20])]
    weights = [number("rows", [0]), number("table", np.ones((30, 20)), 1), number("where", [[3]])]
    proto = model(nodes, [info("x", ["N", 20])], outputs, weights, domains=("com.microsoft",))
    relu, gradient, total, scatter, exp = schedule_of(range(5))
    first, second = (relu, gradient, total, scatter, exp), (relu, gradient, total, scatter, relu, exp)
    emitted = Emitted(proto, [first, second])
    assert emitted.overhead < 100
    for version, limit in enumerate((NO_LIMIT, 0)):
        emitted.assert_runs(emitted.limited(limit), {"N": 9}, version)
    feeds = {"x": np.random.default_rng(0).standard_normal((9, 20), np.float32)}
    for limit in (NO_LIMIT, 0):
        assert _same(_outputs(proto, feeds), _outputs(emitted.limited(limit), feeds))


def test_reshaped_and_element_wise_results_are_not_early_either():
    """Gradients as exporters write them: summed and reshaped to constant dims, and rows added to weights."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="r"),
        helper.make_node("ReduceSum", ["r", "rows"], ["sum"], name="sum", keepdims=1),
        helper.make_node("Reshape", ["sum", "flat"], ["bias"], name="bias"),
        helper.make_node("Constant", [], ["square"], name="square", value=number("s", [4, -1])),
        helper.make_node("Reshape", ["sum", "square"], ["folded"], name="folded"),
        helper.make_node("Add", ["bias", "old"], ["moving"], name="moving"),
        helper.make_node("Reshape", ["sum", "again"], ["other"], name="other"),
        helper.make_node("Mul", ["bias", "other"], ["scale"], name="scale"),
        helper.make_node("Exp", ["r"], ["y"], name="y"),
    ]
    outputs = [info("folded", [4, 5]), info("moving", [20]), info("scale", [20]), info("y", ["N", 20])]
    weights = [
        number("rows", [0]),
        number("flat", [20]),
        number("again", [20]),
        number("old", np.ones(20), 1),
    ]
    proto = model(nodes, [info("x", ["N", 20])], outputs, weights)
    relu, *others, exp = schedule_of(range(9))
    emitted = Emitted(proto, [(relu, *others, exp), (relu, *others, relu, exp)])
    # 80 bytes each, of which none is there from the start.
    assert emitted.overhead < 80
    branch = _branch(emitted.proto, 0)
    assert {i.name: len(i.type.tensor_type.shape.dim) for i in branch.output}["moving/version0"] == 1
    assert not any(d.dim_value for i in branch.output[:3] for d in i.type.tensor_type.shape.dim)
    feeds = {"x": np.random.default_rng(0).standard_normal((9, 20), np.float32)}
    for version, limit in enumerate((NO_LIMIT, 0)):
        emitted.assert_runs(emitted.limited(limit), {"N": 9}, version)
        assert _same(_outputs(proto, feeds), _outputs(emitted.limited(limit), feeds))


@pytest.mark.parametrize("name", ["transformer_train", "unet", "mlp_train", "decoder"])
def test_a_guard_is_at_most_a_hundred_nodes(name):
    emitted = _with_levels(name, 5)
    around = [n for n in emitted.proto.graph.node if n.op_type not in ("If", "Constant")]
    assert 0 < len(around) <= 100
    assert emitted.overhead <= 500
