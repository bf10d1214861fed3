from itertools import product

import numpy as np
import pytest

from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.expression import Expr
from onnx_symmem.order.bound import necessary_bytes
from onnx_symmem.order.buffers import BufferGraph
from onnx_symmem.order.cone import size_cone
from onnx_symmem.order.cut import CutFinder
from onnx_symmem.order.cut_bound import cut_bound, peak_floor
from tests.order.graphs import all_orders, peak, random_graph

BATCH, SEQ = Expr.symbol("batch"), Expr.symbol("seq")


def random_sizes(seed, widths):
    rng = np.random.default_rng(seed)
    forms = (BATCH, BATCH * SEQ, BATCH * SEQ**2, BATCH * (SEQ // 2), SEQ // 4 + 1, Expr.const(3), SEQ - 1)
    return [w * forms[int(rng.integers(len(forms)))] for w in widths]


@pytest.mark.parametrize("lo", [1, 3])
@pytest.mark.parametrize("seed", range(12))
def test_no_order_is_below_the_bound_at_any_shape(seed, lo):
    graph, widths = random_graph(seed, 7)
    domain = Domain({"batch": SymbolRange(1), "seq": SymbolRange(lo, 64)})
    sizes = random_sizes(seed, widths)
    shapes = [{"batch": 1, "seq": lo}, {"batch": 4, "seq": 40}]
    bounds = cut_bound(graph, sizes, domain, shapes, [graph.topological])
    assert bounds
    orders = list(all_orders(graph))
    for batch, seq in product((1, 2, 9), (3, 4, 7, 40, 64)):
        shape = {"batch": batch, "seq": seq}
        concrete = [s.evaluate(shape) for s in sizes]
        bound = max(b.evaluate(shape) for b in bounds)
        assert bound <= min(peak(graph, concrete, order) for order in orders)


@pytest.mark.parametrize("seed", range(12))
def test_at_one_shape_it_is_the_most_that_some_node_needs_in_every_order(seed):
    graph, sizes = random_graph(seed, 7)
    finder, orders = CutFinder(graph), list(all_orders(graph))
    for node in range(graph.size):
        least = min(live_at(graph, sizes, order, node) for order in orders)
        cut = finder.least(finder.roles(node), sizes)
        assert cut.bytes + sum(sizes[b] for b in graph.makes[node]) == least
        for before in (cut.most, cut.fewest):
            closed = {p for n, role in enumerate(finder.roles(node)) if role == 1 for p in (n,)} | set(before)
            assert all(p in closed for n in before for p in graph.predecessors[n])


def test_a_cut_that_was_made_is_not_that_of_other_roles_or_sizes():
    graph, sizes = random_graph(3, 12)
    finder, doubled = CutFinder(graph), [2 * size for size in sizes]
    first = {node: finder.least(finder.roles(node), sizes) for node in range(graph.size)}
    for node, cut in first.items():
        assert finder.least(finder.roles(node), list(sizes)) is cut
        assert finder.least(finder.roles(node), doubled).bytes == 2 * cut.bytes
        assert CutFinder(graph).least(finder.roles(node), sizes) == cut
    assert len({cut.bytes for cut in first.values()}) > 1


def live_at(graph, sizes, order, node):
    """Bytes while a node runs."""
    ran = set(order[: order.index(node)])
    live = sum(sizes[b] for b in graph.makes[node])
    for buffer, producer in enumerate(graph.producer):
        waits = graph.pinned[buffer] or any(r not in ran for r in graph.readers[buffer])
        live += sizes[buffer] if producer in ran and waits else 0
    return live


@pytest.mark.parametrize("seed", range(20))
def test_it_is_not_below_what_is_live_in_every_order(seed):
    graph, widths = random_graph(seed, 30)
    domain = Domain()
    sizes = [w * BATCH for w in widths]
    necessary = necessary_bytes(graph, sizes)
    found = cut_bound(graph, sizes, domain, [{"batch": 5}], [graph.topological], necessary)
    floor = peak_floor(graph, np.array([[5.0 * w] for w in widths]), [graph.topological])
    known = max(b.evaluate({"batch": 5}) for b in necessary)
    best = max([known, *(b.evaluate({"batch": 5}) for b in found)])
    assert best == max(known, floor.bytes[0])
    assert best <= peak(graph, [5 * w for w in widths], graph.topological)


@pytest.mark.parametrize("seed", range(12))
def test_the_floor_at_many_shapes_is_the_most_that_a_cut_tells_at_each(seed):
    graph, _ = random_graph(seed, 25)
    table = np.random.default_rng(seed).integers(0, 60, (len(graph.producer), 6)).astype(float)
    finder, wanted = CutFinder(graph), []
    for column in table.T.astype(int).tolist():
        own = [sum(column[b] for b in made) for made in graph.makes]
        cuts = [finder.least(finder.roles(node), column).bytes for node in range(graph.size)]
        wanted.append(max(a + b for a, b in zip(own, cuts, strict=True)))
    found = peak_floor(graph, table, [graph.topological])
    assert found.bytes.tolist() == wanted
    assert all(node in found.looked_at for node in found.nodes)


def test_memory_that_no_single_buffer_explains():
    """Two branches of 100 bytes end in 1 byte each: the second one runs beside what the first one left."""
    graph = BufferGraph(
        predecessors=((), (), (0,), (1,), (2, 3)),
        successors=((2,), (3,), (4,), (4,), ()),
        producer=(0, 1, 2, 3, 4),
        readers=((2,), (3,), (4,), (4,), ()),
        pinned=(False, False, False, False, True),
        optional_share=(),
    )
    sizes = [100 * BATCH, 100 * BATCH, BATCH, BATCH, BATCH]
    bounds = cut_bound(graph, sizes, Domain(), [{"batch": 8}], [graph.topological])
    assert max(b.evaluate({"batch": 8}) for b in bounds) == 8 * 101


def test_a_result_that_may_overwrite_its_operand_is_counted_once():
    graph = BufferGraph(((), (0,)), ((1,), ()), (0, 1), ((1,), ()), (False, True), ((1, 1, 0),))
    bounds = cut_bound(graph, [4 * BATCH, 4 * BATCH], Domain(), [{"batch": 1}], [(0, 1)])
    assert max(b.evaluate({"batch": 3}) for b in bounds) == 12


def test_resolutions_meet_in_one_generator():
    half, quarter = SEQ // 2, SEQ // 4
    cone = size_cone([8 * half, 8 * quarter, BATCH * SEQ], Domain())
    assert (cone.table >= 0).all()
    for row, size in zip(cone.table, [8 * half, 8 * quarter, BATCH * SEQ], strict=True):
        assert cone.expression(row) == size
    # seq//2 = 2*(seq//4) + e: the coarse division's generator is part of both sizes.
    assert ((cone.table[0] > 0) & (cone.table[1] > 0)).any()
    for shape in ({"seq": s, "batch": 1} for s in range(1, 20)):
        assert all(g.evaluate(shape) >= 0 for g in cone.generators)


def test_a_size_with_a_negative_part_is_a_generator_of_its_own():
    size = 6 * (BATCH - SEQ)
    cone = size_cone([size, 2 * size], Domain().with_inequality(BATCH - SEQ))
    assert cone.table.shape == (2, 1)
    assert [cone.expression(row) for row in cone.table] == [size, 2 * size]
