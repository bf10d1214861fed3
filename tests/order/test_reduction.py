"""What an exact search is spared: the least peak stays what it was, but for the slack."""

import numpy as np
import pytest

from onnx_symmem.order.absorption import absorbed
from onnx_symmem.order.kept_search import KeptSearch
from onnx_symmem.order.problem import OrderProblem, ancestors, restriction, result_groups
from onnx_symmem.order.twins import twins_in_turn
from onnx_symmem.order.valleys import ValleySearch
from tests.order.graphs import buffers, random_graph, training, training_bytes


def problem_of(graph, sizes) -> OrderProblem:
    table = np.asarray(sizes, dtype=np.float64)
    return restriction(graph, table.reshape(len(table), -1), range(graph.size))


def reachable(problem: OrderProblem, caps) -> bool:
    """Whether an order has all its moments below the caps, by trying all down-sets."""
    caps = np.asarray(caps, dtype=np.float64)
    count = len(problem.nodes)
    seen, stack = {0}, [0]
    before = [sum(1 << p for p in nodes) for nodes in problem.before]
    while stack:
        done = stack.pop()
        if done == (1 << count) - 1:
            return True
        live = problem.live.copy()
        for node in range(count):
            if done >> node & 1:
                live = live + problem.makes[node]
        for buffer, readers in enumerate(problem.readers):
            maker = problem.makers[buffer]
            if (maker < 0 or done >> maker & 1) and all(done >> r & 1 for r in readers):
                live = live - problem.sizes[buffer]
        for node in range(count):
            new = done | 1 << node
            if not done >> node & 1 and not before[node] & ~done and new not in seen:
                if (live + problem.needs[node] < caps).all():
                    seen.add(new)
                    stack.append(new)
    return False


def least_caps(problem: OrderProblem, weights) -> float:
    """The least factor of `weights` that an order stays below, by whole numbers."""
    low, high = 0, int(problem.makes.sum() + problem.live.sum()) + 2
    while high - low > 1:
        middle = (low + high) // 2
        if reachable(problem, middle * np.asarray(weights)):
            high = middle
        else:
            low = middle
    return high


def training_problem(seed: int) -> OrderProblem:
    """Some layers of training at two shapes, several of them alike, with weights of all sizes."""
    rng = np.random.default_rng(seed)
    layers = int(rng.integers(2, 5))
    weights = [float(w) for w in rng.choice([1, 2, 2, 6], layers)]
    activations = rng.choice([1, 2, 3, 5], 2)
    return problem_of(training(layers), np.array([training_bytes(layers, a, weights) for a in activations]).T)


def random_problem(seed: int, shapes: int = 2) -> OrderProblem:
    """A random graph; sizes repeat, so that nodes make what they free."""
    rng = np.random.default_rng(seed)
    graph, _ = random_graph(seed, int(rng.integers(6, 11)))
    return problem_of(graph, rng.choice([0, 1, 1, 2, 4], (len(graph.producer), shapes)))


@pytest.mark.parametrize("seed", range(150))
@pytest.mark.parametrize("make", [random_problem, training_problem])
def test_what_is_absorbed_never_raises_the_least_peak_above_the_slack(make, seed):
    problem = make(seed)
    found = absorbed(problem, np.full(2, float(np.random.default_rng(seed).integers(0, 3))))
    for caps in ([5, 5], [7, 4], [9, 12], [14, 8], [12, 20]):
        if reachable(problem, caps):
            assert reachable(found.problem, caps + found.slack)


@pytest.mark.parametrize("seed", range(150))
@pytest.mark.parametrize("make", [random_problem, training_problem])
def test_twins_in_turn_have_an_order_wherever_there_is_one(make, seed):
    problem = make(seed)
    for weights in ([1, 1], [2, 1], [1, 3]):
        assert least_caps(twins_in_turn(problem), weights) == least_caps(problem, weights)


@pytest.mark.parametrize("seed", range(100))
def test_both_together_refute_nothing_that_is_there(seed):
    problem = training_problem(1000 + seed)
    found = absorbed(problem, np.full(2, 2.0))
    both = twins_in_turn(found.problem)
    for weights in ([1, 1], [2, 1], [1, 3]):
        least = least_caps(problem, weights)
        assert ValleySearch(both).below_caps(least * np.array(weights) + found.slack).order is not None


def some_kept(seed: int) -> OrderProblem:
    """Some nodes of a random graph: readers that are not kept are stood for by what runs before them."""
    rng = np.random.default_rng(seed)
    graph, _ = random_graph(seed, 14)
    sizes = rng.choice([0, 1, 1, 2, 3], (len(graph.producer), 2)).astype(np.float64)
    return restriction(graph, sizes, np.flatnonzero(rng.random(14) < 0.6).tolist())


@pytest.mark.parametrize("seed", range(300))
def test_readers_that_are_stood_for_are_not_taken_for_followers(seed):
    problem = some_kept(seed)
    found = absorbed(problem, np.full(2, 2.0))
    both = twins_in_turn(found.problem)
    for weights in ([1, 1], [2, 1], [1, 3]):
        assert reachable(both, least_caps(problem, weights) * np.array(weights) + found.slack)


def test_a_small_node_that_frees_more_than_it_makes_does_not_wait():
    # 4 may free the nine bytes of 1 long before 3 runs, the last other reader of what 0 makes.
    problem = problem_of(buffers([[], [], [1], [0, 2], [0, 1]]), [2, 9, 1, 6, 1])
    found = absorbed(problem, np.full(1, 1.0))
    assert reachable(found.problem, least_caps(problem, [1]) + found.slack)


def test_what_others_wait_for_does_not_wait():
    # 3 waits for 2 and frees nine bytes; 4 makes nine, and is the last other reader of what 2 reads.
    problem = problem_of(buffers([[], [], [0], [2, 1], [0]]), [2, 9, 1, 1, 9])
    found = absorbed(problem, np.full(1, 1.0))
    assert reachable(found.problem, least_caps(problem, [1]) + found.slack)


def test_what_small_nodes_hold_is_allowed_for():
    graph = buffers([[], [], [0, 1], [0]])
    table = np.array([[2.0], [90_000.0], [90_000.0], [2.0]])
    search = KeptSearch(graph, table, np.array([180_002.0]), range(4), 2.0**-20)
    assert search.slack.tolist() == [2.0]
    assert search.below(np.array([180_003.0]), 10_000).order is not None
    assert search.below(np.array([180_000.0]), 10_000).exact


def test_what_waits_for_its_reader_is_part_of_it():
    # 0 makes what 1 turns into as many bytes, which 2 alone reads.
    problem = problem_of(buffers([[], [0], [1]]), [3, 3, 1])
    found = absorbed(problem, np.zeros(1))
    assert [len(r) for r in found.problem.reads] == [0, 1]
    assert found.problem.nodes == (0, 2)
    assert not found.slack.any()


def test_a_small_node_follows_the_last_reader_of_what_it_frees():
    # 2 and 3 read what 0 makes; 3 needs no more than that, and is nothing that anything waits for.
    problem = problem_of(buffers([[], [], [0, 1], [0]]), [2, 9, 9, 2])
    found = absorbed(problem, np.full(1, 2.0))
    assert 3 not in found.problem.nodes
    assert found.slack.tolist() == [2.0]
    assert absorbed(problem, np.full(1, 1.0)).problem.nodes == problem.nodes


def test_twins_are_bound_by_when_they_can_be_made():
    problem = problem_of(training(4), training_bytes(4, 2, [1, 1, 1, 1]))
    bound = twins_in_turn(problem)
    groups = result_groups(problem.before, problem.after)
    assert len(groups) >= 4
    more = sum(map(len, bound.before)) - sum(map(len, problem.before))
    assert more == 4  # two nodes each, from a layer to the next but one
    above = ancestors(bound)
    assert not any(above[k] >> k & 1 for k in range(len(bound.nodes)))


def test_groups_that_differ_at_one_shape_are_no_twins():
    sizes = np.array([training_bytes(3, 2, [1, 1, 1]), training_bytes(3, 2, [1, 4, 7])]).T
    problem = problem_of(training(3), sizes)
    assert twins_in_turn(problem).before == problem.before


def test_an_operand_that_others_read_later_keeps_twins_apart():
    # 3 and 4 are results of the same bytes; what 3 reads is free after 1, which 4 waits for.
    graph = buffers([[], [0], [1], [0], [1]])
    problem = problem_of(graph, [3, 3, 9, 1, 1])
    place = problem.nodes.index
    assert place(3) in twins_in_turn(problem).before[place(4)]
    assert place(3) not in problem.before[place(4)]
    # 5 reads it as well, at any time.
    problem = problem_of(buffers([[], [0], [1], [0], [1], [0]]), [3, 3, 9, 1, 1, 7])
    assert twins_in_turn(problem).before == problem.before
