import numpy as np
import pytest

from onnx_symmem.errors import UsageError
from onnx_symmem.order.buffers import BufferGraph
from onnx_symmem.order.downsets import DownSetProgram
from onnx_symmem.order.oracle import least_peak
from onnx_symmem.order.problem import restriction
from onnx_symmem.order.valleys import ValleySearch
from onnx_symmem.order.window import improve_order
from tests.order.graphs import all_orders, peak, random_graph, random_order
from tests.order.test_valleys import moments


def table_of(sizes):
    return np.array([sizes], dtype=np.float64).T


def random_wiring(seed, nodes):
    """Nodes that read up to three of the eight before them, as in randomly wired networks."""
    rng = np.random.default_rng(seed)
    before = [
        sorted({int(p) for p in rng.integers(max(0, k - 8), k, 1 + k % 3)}) if k else [] for k in range(nodes)
    ]
    after = [tuple(k for k in range(nodes) if node in before[k]) for node in range(nodes)]
    pinned = tuple(not readers or bool(rng.random() < 0.05) for readers in after)
    graph = BufferGraph(
        tuple(map(tuple, before)), tuple(after), tuple(range(nodes)), tuple(after), pinned, ()
    )
    return graph, [int(b) for b in rng.integers(1, 50, nodes)]


@pytest.mark.parametrize("seed", range(12))
def test_the_oracle_agrees_with_enumeration(seed):
    graph, sizes = random_graph(seed, 8)
    found = least_peak(restriction(graph, table_of(sizes), range(graph.size)))
    assert found.proved
    assert found.peak == min(peak(graph, sizes, order) for order in all_orders(graph))


@pytest.mark.parametrize("seed", [1, 4, 5, 6, 7, 9, 10, 12])
def test_what_works_in_the_place_of_an_operand_takes_nothing_where_that_dies(seed):
    graph, _ = random_wiring(seed, 10)
    each = {
        node: (node, node, read)
        for node, buffers in enumerate(graph.reads)
        for read in buffers
        if node % 3 and not graph.pinned[read]
    }
    shared = BufferGraph(
        graph.predecessors, graph.successors, graph.producer, graph.readers, graph.pinned,
        tuple(each.values()),
    )  # fmt: skip
    sizes = table_of([4] * graph.size)
    problem = restriction(shared, sizes, range(graph.size))
    found = least_peak(problem)
    assert found.proved
    search = ValleySearch(problem)
    assert search.below_caps(np.array([float(found.peak)])).order is None
    order = search.below_caps(np.array([found.peak + 1.0])).order
    assert moments(problem, order).max() == found.peak == moments(problem, found.order).max()
    # Without it more is needed at these seeds.
    assert least_peak(restriction(graph, sizes, range(graph.size))).peak > found.peak


def test_a_part_of_an_operand_cannot_be_saved():
    graph, sizes = random_graph(1, 8)
    node = next(n for n in range(graph.size) if graph.reads[n] and graph.makes[n])
    read, made = graph.reads[node][0], graph.makes[node][0]
    sizes[read], sizes[made] = 9, 5
    shared = BufferGraph(
        graph.predecessors, graph.successors, graph.producer, graph.readers, (False,) * len(graph.pinned),
        ((node, made, read),),
    )  # fmt: skip
    with pytest.raises(UsageError, match="saves 5 B in the place of a buffer of 9 B"):
        least_peak(restriction(shared, table_of(sizes), range(graph.size)))


@pytest.mark.parametrize("seed", range(104))
def test_the_search_finds_what_the_oracle_proves(seed):
    nodes = 6 + seed % 20 if seed < 98 else 40
    graph, sizes = random_wiring(seed, nodes)
    told = least_peak(restriction(graph, table_of(sizes), range(nodes)), effort=5.0)
    assert told.proved or nodes > 26
    found = improve_order(graph, table_of(sizes), random_order(graph, seed), np.array([1.0]))
    assert told.bound <= peak(graph, sizes, found) <= told.peak


@pytest.mark.parametrize("seed", range(14))
def test_the_program_proves_what_the_oracle_proves(seed):
    nodes = 12 + seed
    graph, sizes = random_wiring(500 + seed, nodes)
    rng = np.random.default_rng(seed)
    kept = range(nodes) if seed % 2 else np.flatnonzero(rng.random(nodes) < 0.7).tolist()
    problem = restriction(graph, table_of(sizes), kept)
    told = least_peak(problem, effort=5.0)
    assert told.proved
    program = DownSetProgram(problem)
    below = program.below_caps(np.array([float(told.peak)]), 200_000)
    assert below.exact
    assert below.order is None
    assert program.below_caps(np.array([told.peak + 1.0]), 200_000).order is not None
