import numpy as np
import pytest

from onnx_symmem.expr.expression import Expr
from onnx_symmem.order.bound import necessary_bytes
from onnx_symmem.order.buffers import BufferGraph
from tests.order.graphs import all_orders, peak, random_graph


@pytest.mark.parametrize("seed", range(12))
def test_no_order_is_below_the_bound_at_any_shape(seed):
    graph, widths = random_graph(seed, 7)
    batch, seq = Expr.symbol("batch"), Expr.symbol("seq")
    rng = np.random.default_rng(seed)
    sizes = [w * batch * (seq if rng.random() < 0.5 else 1) for w in widths]
    bounds = necessary_bytes(graph, sizes)
    for shape in ({"batch": 1, "seq": 1}, {"batch": 2, "seq": 9}, {"batch": 7, "seq": 1}):
        concrete = [s.evaluate(shape) for s in sizes]
        bound = max(b.evaluate(shape) for b in bounds)
        assert bound <= min(peak(graph, concrete, order) for order in all_orders(graph))


def test_a_chain_meets_its_bound():
    graph = BufferGraph(
        ((), (0,), (1,)), ((1,), (2,), ()), (0, 1, 2), ((1,), (2,), ()), (False, False, True), ()
    )
    batch = Expr.symbol("batch")
    bounds = necessary_bytes(graph, [4 * batch, 8 * batch, batch])
    assert bounds == (4 * batch, 12 * batch, 9 * batch, batch)


def test_a_result_that_may_overwrite_its_operand_is_counted_once():
    graph = BufferGraph(((), (0,)), ((1,), ()), (0, 1), ((1,), ()), (False, True), ((1, 1, 0),))
    batch = Expr.symbol("batch")
    assert necessary_bytes(graph, [4 * batch, 4 * batch])[1] == 4 * batch


def test_coefficients_beyond_float64_stay_exact():
    graph = BufferGraph(((),), ((),), (0,), ((),), (True,), ())
    huge = (1 << 60) + 1
    assert necessary_bytes(graph, [Expr.const(huge)])[0] == huge
