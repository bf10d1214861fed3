"""Guards run under ONNX Runtime and decide as exact Python integers do, at thousands of shapes."""

import itertools

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_symmem.errors import UnsupportedModel
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.text import parse
from onnx_symmem.rewrite.choice import FITS, LEAST, LIMIT, Guard
from onnx_symmem.rewrite.guards import guard_nodes

A, B, C = "a", "b", "c"


def _guard(inputs, versions, policy=FITS, domain=None) -> Guard:
    dims = tuple((name, tuple(parse(str(d)) for d in given)) for name, given in inputs.items())
    return Guard(dims, domain or Domain(), tuple(tuple(map(parse, v)) for v in versions), policy)


class Runner:
    """The guard alone as a model whose inputs are the shapes, which are fed instead of tensors."""

    def __init__(self, guard: Guard, opset: int = 18) -> None:
        self.guard = guard
        made = guard_nodes(guard, opset)
        self.made = made
        inputs, nodes = [], []
        for node in made.nodes:
            if node.op_type == "Shape":
                dims = dict(guard.inputs)[node.input[0]]
                inputs.append(helper.make_tensor_value_info(node.output[0], TensorProto.INT64, [len(dims)]))
            else:
                nodes.append(node)
        self.shapes = {n.output[0]: n.input[0] for n in made.nodes if n.op_type == "Shape"}
        limit = helper.make_tensor_value_info(LIMIT, TensorProto.INT64, [])
        outputs = [helper.make_tensor_value_info(c, TensorProto.BOOL, [1]) for c in made.conditions]
        graph = helper.make_graph(
            nodes, "g", [*inputs, limit], outputs, [*made.initializers],
            value_info=[i for i in made.infos if i.name not in {*made.conditions, *self.shapes}],
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        self.session = ort.InferenceSession(model.SerializeToString(), options)

    def at(self, shape, limit: int = 0) -> int:
        """The version that runs; dims of the inputs are evaluated at the shape, symbols may be overridden."""
        feeds = {LIMIT: np.array(limit, np.int64)}
        for name, of in self.shapes.items():
            dims = [d.evaluate(shape) for d in dict(self.guard.inputs)[of]]
            feeds[name] = np.array(dims, np.int64)
        return self.decide(feeds)

    def decide(self, feeds) -> int:
        flags = self.session.run(None, feeds)
        return next((k for k, flag in enumerate(flags) if flag.item()), len(flags))


def _assert_agrees(guard: Guard, shapes, opset: int = 18) -> None:
    runner = Runner(guard, opset)
    assert len(runner.made.nodes) <= 100
    seen = set()
    for shape in shapes:
        known = {n: v for n, v in shape.items() if n not in guard.domain.equalities}
        limits = {0}
        if guard.policy == FITS and guard.domain.contains(shape):
            peaks = [guard.peak(k, known) for k in guard.compared]
            limits = {0, *(p + d for p in peaks for d in (-1, 0, 1))}
        for limit in limits:
            found = runner.at(shape, limit)
            assert found == guard.version_at(shape, limit), (shape, limit)
            seen.add(found)
    assert len(seen) > 1


SIZES = (0, 1, 2, 3, 7, 8, 64, 1000, 4097)
GRID = [{A: x, B: y} for x in SIZES for y in SIZES]
INPUTS = {"x": (A, 3, B), "y": (B, A)}
MIXED = [["4*a*b + 100", "8*b**2"], ["3*a*b + 64*b", "7*b**2"], ["2*a*b + b"]]


@pytest.mark.parametrize("policy", [FITS, LEAST])
@pytest.mark.parametrize("opset", [9, 11, 13, 18])
def test_polynomials(policy, opset):
    _assert_agrees(_guard(INPUTS, MIXED, policy), GRID, opset)


CROSSING = [["a**2 + 5"], ["8*a + b"], ["12*b"], ["3*a + 3*b", "b**2"]]


def test_least_takes_the_first_of_equals():
    _assert_agrees(_guard(INPUTS, CROSSING, LEAST), GRID)
    same = Runner(_guard(INPUTS, [["a + b"], ["a + b"], ["a"]], LEAST))
    assert same.at({A: 5, B: 0}) == 0  # outside
    assert same.at({A: 5, B: 1}) == 2
    tied = Runner(_guard(INPUTS, [["2*a"], ["a + b"]], LEAST))
    assert [tied.at({A: a, B: 4}) for a in (3, 4, 5)] == [0, 0, 1]


ATOMS = [
    ["4*max(a, b, 3)*((a + 1)//2)", "((a - 9)//4)*b + 5"],
    ["3*min(a, b)*(a//(b + 1)) + b", "2*((max(a, 2*b) + 3)//4)*b"],
    ["floor_f32(a, 0.3)*b + 7*floor_f32(b + 1, 1.7)"],
    ["a"],
]
SCALED = [
    ["min(floor_f32(a, 1/max(a, b), 20), floor_f32(a, 10/b))*floor_f32(b, 0.7) + b"],
    ["6*floor_f32(0.3, (a + b)/(2*b + 1), 7*b/3) + floor_f32(b, 1/a, 49)"],
    ["20*a"],
]


@pytest.mark.parametrize("policy", [FITS, LEAST])
def test_divisions_extremes_and_float_floors(policy):
    _assert_agrees(_guard(INPUTS, ATOMS, policy), GRID)


@pytest.mark.parametrize("policy", [FITS, LEAST])
def test_products_are_rounded_as_the_model_rounds_them(policy):
    exact = parse("a*49//a")  # 49, where rounding makes 48 of it now and then
    rounded = parse("floor_f32(a, 1/a, 49)")
    assert {rounded.evaluate({"a": a}) for a in range(1, 60)} == {48, 49}
    assert exact == 49
    _assert_agrees(_guard(INPUTS, SCALED, policy), GRID)
    _assert_agrees(_guard(INPUTS, [["floor_f32(a, 1/a, 49)"], ["48"], ["b"]], policy), GRID)


def test_ranges_divisors_equalities_and_inequalities():
    domain = Domain({A: SymbolRange(2, 1000), B: SymbolRange(8, None, 8)})
    domain = domain.with_inequality(parse("3*b - a")).with_equality(C, parse("a + b"))
    guard = _guard({"x": (A, B), "y": (C, 4)}, [["4*a*b"], ["2*a*b"], ["a*b"]], FITS, domain)
    shapes = [
        {A: a, B: b, C: a + b} for a in (0, 1, 2, 3, 25, 999, 1000, 1001) for b in (0, 7, 8, 9, 16, 336)
    ]
    _assert_agrees(guard, shapes)
    runner = Runner(guard)
    # Dims that do not agree with each other are none that was planned.
    for c in range(20, 30):
        feeds = dict(zip(runner.shapes, (np.array([16, 8]), np.array([c, 4])), strict=True))
        assert runner.decide({**feeds, LIMIT: np.array(1 << 40)}) == (0 if c == 24 else 2)


def test_a_symbol_in_several_places_has_one_size():
    runner = Runner(_guard(INPUTS, CROSSING, LEAST))
    x, y = runner.shapes
    limit = {LIMIT: np.array(0)}
    assert runner.decide({x: np.array([9, 3, 2]), y: np.array([2, 9]), **limit}) == 2
    assert runner.decide({x: np.array([9, 3, 2]), y: np.array([2, 8]), **limit}) == 0
    assert runner.decide({x: np.array([9, 3, 2]), y: np.array([1, 9]), **limit}) == 0


@pytest.mark.parametrize("policy", [FITS, LEAST])
def test_nothing_overflows(policy):
    """Where a sum would pass 2**62 the safest version runs; below it is exact, at any single size."""
    versions = [["1000*a*b**2 + 4*a"], ["999*a*b**2 + 6*a"], ["998*a*b**2 + 50*b"]]
    guard = _guard(INPUTS, versions, policy)
    runner = Runner(guard)
    exact = 0
    for a, b in itertools.product([1 << k for k in range(0, 63, 3)], repeat=2):
        shape = {A: a, B: b}
        peaks = [guard.peak(k, shape) for k in range(3)]
        limit = min(peaks[1], (1 << 63) - 1)
        found = runner.at(shape, limit)
        if max(peaks) < 1 << 61:
            assert found == guard.version_at(shape, limit)
            exact += 1
        elif max(peaks) > 1 << 62:
            assert found == guard.safest
        else:
            assert found in (guard.safest, guard.version_at(shape, limit))
    assert exact > 80


def test_where_none_fits_the_first_of_the_least_runs():
    guard = _guard(INPUTS, [["4*a"], ["2*a + b"], ["a + 2*b"], ["4*b"], ["9*a"]])
    runner = Runner(guard)
    # Under no limit that any fits: by brute force, and ties go to the one that repeats less.
    for shape in GRID:
        inside = min(shape.values()) > 0
        sizes = [guard.peak(k, shape) for k in range(5)]
        assert runner.at(shape, 0) == (sizes.index(min(sizes)) if inside else 4), shape
    assert [runner.at({A: 7, B: b}, 0) for b in (3, 6, 7, 8)] == [3, 2, 1, 1]
    assert runner.at({A: 7, B: 3}, 19) == 1  # the first that fits, though another takes less


def test_a_last_version_that_data_decides_runs_where_no_other_fits():
    guard = _guard(INPUTS, [["4*a*b"], ["3*a*b"], ["2*a*b", "8*u0"]])
    runner = Runner(guard)
    assert list(guard.compared) == [0, 1]
    for shape in GRID:
        assert runner.at(shape, 100) == guard.version_at(shape, 100)
    assert [runner.at({A: 5, B: 5}, limit) for limit in (100, 75, 74)] == [0, 1, 2]


def test_thousands_of_shapes():
    guard = _guard(INPUTS, ATOMS[:3], LEAST, Domain({A: SymbolRange(1, None), B: SymbolRange(0, 5000)}))
    rng = np.random.default_rng(0)
    sizes = np.exp(rng.uniform(0, 9, (3000, 2))).astype(int) - 1
    _assert_agrees(guard, [{A: int(a), B: int(b)} for a, b in sizes])


def test_what_no_input_tells_is_refused():
    with pytest.raises(UnsupportedModel, match="depends on 'u0', which the shape of no input tells"):
        guard_nodes(_guard(INPUTS, [["4*u0*a"], ["a"]]), 18)
    with pytest.raises(UnsupportedModel, match="'a' is no dim of an input by itself"):
        guard_nodes(_guard({"x": ("2*a", B)}, [["4*a"], ["a"]]), 18)
    with pytest.raises(UnsupportedModel, match="opset 9, and the model has opset 8"):
        guard_nodes(_guard(INPUTS, MIXED), 8)
    with pytest.raises(UnsupportedModel, match="coefficients beyond"):
        guard_nodes(
            Guard((("x", (Expr.symbol(A),)),), Domain(), ((Expr.symbol(A) * (1 << 63),),) * 2, FITS), 18
        )


def test_nothing_is_computed_twice():
    """ONNX Runtime would merge equal nodes, and the rest of the file with them would not be as planned."""
    # What is compared is made of the same sizes as the ranges.
    versions = [["8*a + 8", "8*b + 8"], ["4*a + 8", "4*b + 8"]]
    domain = Domain({A: SymbolRange(2, 64), B: SymbolRange(2, 64)})
    nodes = guard_nodes(_guard({"x": [A, B]}, versions, domain=domain), 18).nodes
    said = [(n.op_type, *n.input, *(a.SerializeToString() for a in n.attribute)) for n in nodes]
    assert len(said) == len(set(said)) > 10


def test_names_are_new_and_bytes_are_the_same():
    guard = _guard(INPUTS, MIXED, LEAST)
    taken = ["symmem/guard/0_shape_0", "other"]
    made = guard_nodes(guard, 18, taken, ranks=[1, 3])
    names = [*made.conditions, *(t.name for t in made.initializers), *(n.name for n in made.nodes)]
    assert not any(n.startswith("symmem/guard/") for n in names)
    again = guard_nodes(guard, 18, taken, ranks=[3, 1])
    assert [n.SerializeToString() for n in made.nodes] == [n.SerializeToString() for n in again.nodes]
    assert set(made.zeros) == {1, 3}
    assert all(numpy_helper.to_array(t).size <= 100 for t in made.initializers)
