import pytest

from onnx_symmem.order.buffers import BufferGraph
from onnx_symmem.order.heuristics import HEURISTICS, forward_greedy, least_peak_first, reverse_greedy
from tests.order.graphs import all_orders, peak, random_graph


@pytest.mark.parametrize("name", HEURISTICS)
@pytest.mark.parametrize("seed", range(20))
def test_every_heuristic_returns_a_topological_order(name, seed):
    graph, sizes = random_graph(seed, 40)
    order = HEURISTICS[name](graph, sizes)
    assert sorted(order) == list(range(graph.size))
    position = {node: k for k, node in enumerate(order)}
    assert all(position[p] < position[n] for n in range(graph.size) for p in graph.predecessors[n])


def two_branches():
    """0 feeds two branches that each make a wide tensor (100) and reduce it (1); 5 joins the results."""
    return BufferGraph(
        predecessors=((), (0,), (0,), (1,), (2,), (3, 4)),
        successors=((1, 2), (3,), (4,), (5,), (5,), ()),
        producer=(0, 1, 2, 3, 4, 5),
        readers=((1, 2), (3,), (4,), (5,), (5,), ()),
        pinned=(False, False, False, False, False, True),
        optional_share=(),
    ), [1, 100, 100, 1, 1, 1]


@pytest.mark.parametrize("name", HEURISTICS)
def test_one_wide_tensor_at_a_time(name):
    graph, sizes = two_branches()
    assert peak(graph, sizes, (0, 1, 2, 3, 4, 5)) == 201
    best = min(peak(graph, sizes, order) for order in all_orders(graph))
    assert best == 102
    assert peak(graph, sizes, HEURISTICS[name](graph, sizes)) == best


def test_greedy_prefers_the_node_that_frees_most():
    # 1 reads the big buffer of 0 last; 2 only grows memory: the freeing node goes first.
    graph = BufferGraph(((), (0,), ()), ((1,), (), ()), (0, 1, 2), ((1,), (), ()), (False, True, True), ())
    assert forward_greedy(graph, [100, 1, 5]) == (2, 0, 1)
    assert forward_greedy(graph, [3, 1, 5]) == (0, 1, 2)


def test_least_peak_first_does_not_raise_the_peak_without_need():
    for seed in range(30):
        graph, sizes = random_graph(seed, 8)
        best = min(peak(graph, sizes, order) for order in all_orders(graph))
        assert best <= peak(graph, sizes, least_peak_first(graph, sizes))


def test_reverse_greedy_finds_the_order_that_forward_greedy_misses():
    # Both start nodes look alike from the front; seen from the back the long branch must come first.
    found = 0
    for seed in range(60):
        graph, sizes = random_graph(seed, 9)
        if peak(graph, sizes, reverse_greedy(graph, sizes)) < peak(
            graph, sizes, forward_greedy(graph, sizes)
        ):
            found += 1
    assert found


def test_greedy_sees_that_a_buffer_has_one_reader_left():
    """0 makes 100 bytes that 1 and 2 read; once 1 has run, 2 frees them and goes before 3, which frees 10."""
    graph = BufferGraph(
        predecessors=((), (0,), (0, 1), (1,)),
        successors=((1, 2), (2, 3), (), ()),
        producer=(0, 1, 2, 3),
        readers=((1, 2), (3,), (), ()),
        pinned=(False, False, True, True),
        optional_share=(),
    )
    assert forward_greedy(graph, [100, 10, 20, 5]) == (0, 1, 2, 3)
