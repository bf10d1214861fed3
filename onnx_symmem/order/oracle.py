"""The least peak of some nodes by constraint programming: an oracle for tests, and a last resort.

OR-Tools' CP-SAT places every node at a step of its own; a buffer is an interval from its producer to its last
reader, and all intervals together are one cumulative resource whose capacity is the peak (facts/ALGORITHMS,
8.5). A node that may work in the place of an operand lets that end a step sooner, if it is its last reader.
It needs the extra `onnx-symmem[cpsat]`, which is imported when it is asked for. One worker and a
deterministic limit instead of a clock, so that the same problem gives the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from onnx_symmem.errors import UsageError
from onnx_symmem.order.problem import OrderProblem

__all__ = ["LeastPeak", "least_peak"]


@dataclass(frozen=True, slots=True)
class LeastPeak:
    """An order, by places in the problem's nodes, its peak, and a bound; both are equal where `proved`."""

    order: tuple[int, ...]
    peak: int
    bound: int

    @property
    def proved(self) -> bool:
        """Whether no order has a smaller peak."""
        return self.peak == self.bound


def least_peak(
    problem: OrderProblem, effort: float = 30.0, seed: int = 0, column: int = 0
) -> LeastPeak | None:
    """The order of least peak at one shape, a column of the sizes; None where none was found in time.

    `effort` is CP-SAT's deterministic time, about seconds. Sizes have to be whole bytes; what a node works in
    the place of has to be of the size that this saves, or not take part.
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise UsageError(
            "exact orders by CP-SAT need OR-Tools; install it with: pip install 'onnx-symmem[cpsat]'"
        ) from error
    count = len(problem.nodes)
    sizes = [int(s) for s in problem.sizes[:, column]]
    needs, makes = ([int(s) for s in part[:, column]] for part in (problem.needs, problem.makes))
    live = int(problem.live[column])
    model = cp_model.CpModel()
    step = [model.new_int_var(0, count - 1, f"step{k}") for k in range(count)]
    model.add_all_different(step)
    for k, producers in enumerate(problem.before):
        for p in producers:
            model.add(step[p] < step[k])
    # What dies is held from the node that makes it; what is made elsewhere is there from the start.
    dies: list[list[int]] = [[] for _ in range(count)]
    made: dict[int, int] = {}
    for b in range(len(sizes)):
        owner = problem.makers[b]
        if owner >= 0:
            dies[owner].append(b)
            made[b] = owner
    most = live + sum(needs) + sum(makes)
    peak = model.new_int_var(0, max(most, 0), "peak")
    shares = _shares(problem, sizes, [m - n for n, m in zip(needs, makes, strict=True)])
    sooner = {pair: model.new_bool_var(f"sooner{pair}") for pair in shares}
    # Of several that die none need be held on: the step before is no lower than what was live after it.
    intervals, demands = [], []
    for b, size in enumerate(sizes):
        if not size:
            continue
        start = step[made[b]] if b in made else 0
        end = model.new_int_var(1, count, f"end{b}")
        for reader in problem.readers[b]:
            model.add(end >= step[reader] + 1 - sooner.get((reader, b), 0))
        length = model.new_int_var(0, count, f"length{b}")
        intervals.append(model.new_interval_var(start, length, end, f"held{b}"))
        demands.append(size)
    for k in range(count):
        stays = makes[k] - sum(sizes[b] for b in dies[k])
        if stays:
            length = model.new_int_var(1, count, f"stay{k}")
            intervals.append(model.new_interval_var(step[k], length, count, f"stays{k}"))
            demands.append(stays)
        extra = needs[k] - makes[k]
        if extra > 0:
            intervals.append(model.new_fixed_size_interval_var(step[k], 1, f"extra{k}"))
            demands.append(extra)
    base = live - sum(size for b, size in enumerate(sizes) if b not in made)
    capacity = model.new_int_var(0, max(most, 0), "capacity")
    model.add(peak == capacity + base)
    model.add_cumulative(intervals, demands, capacity)
    model.minimize(peak)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = effort
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    order = tuple(sorted(range(count), key=lambda k: solver.value(step[k])))
    return LeastPeak(order, int(solver.objective_value), round(solver.best_objective_bound))


def _shares(problem: OrderProblem, sizes: list[int], saved: list[int]) -> list[tuple[int, int]]:
    """(node, buffer): a node saves all of the bytes of a buffer while it runs, if that dies with it."""
    found: list[tuple[int, int]] = []
    for k, most in enumerate(saved):
        for b in problem.reads[k] if most > 0 else ():
            if sizes[b] == most:
                found.append((k, b))
            elif sizes[b]:
                raise UsageError(
                    f"CP-SAT cannot order node {k}: it saves {most} B in the place of a buffer of "
                    f"{sizes[b]} B"
                )
    return found
