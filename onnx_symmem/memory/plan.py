"""ONNX Runtime's allocation plan for a given execution order: who shares whose buffer, who is freed when.

The rules, in the order ONNX Runtime's planner tries them for each output of each node:

1. A graph output has its own buffer, which is never freed and never shared away.
2. An aliasing kernel's output is the buffer of its input, whatever that is.
3. A kernel that may work in place takes over its input's buffer where this is the last use of it, it
   belongs to no graph input, initializer or outer value, and both sizes compare equal.
4. With memory reuse on: the buffer of equal size that was freed last is taken.
5. Otherwise memory is allocated.

A buffer is freed right after the last node that reads any value in it, subgraphs' reads included; a
value that nobody reads is kept until the run (or the branch) ends. A Constant node is an initializer by
the time ONNX Runtime plans.

All that does not depend on the order is computed once, in `PlanInput`; planning one order is a single
pass, fit for the inner loop of a search.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from onnx_symmem.graph.view import INITIALIZER, NODE, GraphView, Node
from onnx_symmem.memory.execution_order import OrderRule, priority_order
from onnx_symmem.memory.sharing import sharing_of
from onnx_symmem.memory.sizes import DimKeys, SizeKey

__all__ = ["Plan", "PlanInput", "PlanOptions", "plan", "prepare"]

ALLOC, OUTPUT, SHARE = "alloc", "output", "share"


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What the plan depends on besides the graph: session settings, and where nodes run.

    `provider` runs all nodes but, on CUDA, those of the main graph in `host_nodes`, which are on the CPU.
    ONNX Runtime plans the two apart: what nodes of both make or read is never taken over in place.
    """

    provider: str = "cpu"
    mem_reuse: bool = False
    host_nodes: frozenset[int] = frozenset()


@dataclass(frozen=True)
class PlanInput:
    """The part of a plan that is the same for every order of one graph.

    Aliases hold in every order, so values are merged into *bases* at once: `base[v]` is the first value
    of the alias chain that ends in `v`, and everything below speaks of bases. Per node: `fixed` are the
    bases it always allocates, `may` pairs each other base it makes with the bases it may take over,
    `reads` are the bases it reads, one entry per read. `uses` counts what must be over before a buffer is
    free: reads, and one that never ends for values that others own. `key` numbers equal sizes, -1 for sizes
    that equal nothing. `makes` are all bases a node's outputs lie in, `reusable` those that may take an
    old buffer (both used with memory reuse only). `static` are the graph outputs whose dims are all numbers,
    `host` the values in the CPU's memory where the provider has its own.
    """

    view: GraphView
    options: PlanOptions
    base: tuple[int, ...]
    uses: tuple[int, ...]
    reads: tuple[tuple[int, ...], ...]
    fixed: tuple[tuple[int, ...], ...]
    may: tuple[tuple[tuple[int, tuple[int, ...]], ...], ...]
    makes: tuple[tuple[int, ...], ...]
    key: tuple[int, ...]
    reusable: frozenset[int]
    static: frozenset[int]
    host: frozenset[int]
    subplans: Mapping[tuple[int, str], Plan] = field(default_factory=dict)

    def plan(self, order: Sequence[int]) -> Plan:
        """The plan for node indices in executed order; `order` must be topological (`check_order`)."""
        run = self._with_reuse if self.options.mem_reuse else self._without_reuse
        return run(order)

    def _without_reuse(self, order: Sequence[int]) -> Plan:
        left = list(self.uses)
        root = list(range(len(left)))
        reads, fixed, may = self.reads, self.fixed, self.may
        allocations: list[tuple[int, ...]] = []
        releases: list[tuple[int, ...]] = []
        for node in order:
            made = fixed[node]
            for value, sources in may[node]:
                for source in sources:
                    owner = root[source]
                    if left[owner] == 1:
                        root[value] = owner
                        left[owner] += left[value]
                        break
                else:
                    made = (*made, value)
            allocations.append(made)
            freed: tuple[int, ...] = ()
            for value in reads[node]:
                owner = root[value]
                left[owner] -= 1
                if not left[owner]:
                    freed = (*freed, owner)
            releases.append(freed)
        return Plan(self, tuple(order), tuple(allocations), tuple(releases), tuple(root))

    def _with_reuse(self, order: Sequence[int]) -> Plan:
        # Here a definition counts as a use too, as in ONNX Runtime: it decides which buffer was freed last.
        left = list(self.uses)
        for bases in self.makes:
            for value in bases:
                left[value] += 1
        root = list(range(len(left)))
        key = self.key
        free: dict[int, list[int]] = {}
        allocations: list[tuple[int, ...]] = []
        last: dict[int, int] = {}
        for step, node in enumerate(order):
            made: tuple[int, ...] = ()
            choices = [*((v, ()) for v in self.fixed[node]), *self.may[node]]
            for value, sources in sorted(choices) if len(choices) > 1 else choices:
                owner = next((root[s] for s in sources if left[root[s]] == 1), -1)
                if owner < 0 and value in self.reusable and free.get(key[value]):
                    owner = free[key[value]].pop()
                if owner < 0:
                    made = (*made, value)
                else:
                    root[value] = owner
                    left[owner] += left[value]
            allocations.append(made)
            for value in self.reads[node]:
                last[root[value]] = step
            for value in (*self.reads[node], *self.makes[node]):
                owner = root[value]
                left[owner] -= 1
                if not left[owner]:
                    free.setdefault(key[owner], []).append(owner)
        releases: list[list[int]] = [[] for _ in order]
        owned = {value for made in allocations for value in made} - self.outputs
        for value, step in last.items():
            if value in owned:
                releases[step].append(value)
        return Plan(self, tuple(order), tuple(allocations), tuple(map(tuple, releases)), tuple(root))

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Per value: its kind in the view, initializer for what Constant nodes make."""
        return _kinds(self.view)

    @cached_property
    def outputs(self) -> frozenset[int]:
        """Values that are outputs of the graph and made by its nodes."""
        return frozenset(v for v in self.view.outputs if self.kinds[v] == NODE)


@dataclass(frozen=True)
class Plan:
    """Allocations and releases of one graph in one order.

    Per step (position in `order`): `allocations` are the values that get memory before the node
    runs, `releases` those whose memory goes back after it. `shared[b]` is the owner of base `b`'s buffer.
    """

    source: PlanInput
    order: tuple[int, ...]
    allocations: tuple[tuple[int, ...], ...]
    releases: tuple[tuple[int, ...], ...]
    shared: tuple[int, ...]

    @property
    def view(self) -> GraphView:
        """The graph that is planned."""
        return self.source.view

    @property
    def subplans(self) -> Mapping[tuple[int, str], Plan]:
        """Plans of subgraphs by (node index, attribute name)."""
        return self.source.subplans

    @cached_property
    def root(self) -> tuple[int, ...]:
        """Per value: the value whose buffer it lies in (itself where it shares nothing)."""
        return tuple(self.shared[b] for b in self.source.base)

    @cached_property
    def kind(self) -> tuple[str, ...]:
        """Per value: input, initializer, outer, output, alloc, or share."""
        outputs = self.source.outputs
        return tuple(
            kind if kind != NODE else OUTPUT if value in outputs else ALLOC if owner == value else SHARE
            for value, (kind, owner) in enumerate(zip(self.source.kinds, self.root, strict=True))
        )


def prepare(
    view: GraphView,
    keys: DimKeys,
    options: PlanOptions | None = None,
    subgraph_order: OrderRule = priority_order,
) -> PlanInput:
    """What planning needs of a graph, for any order; subgraphs are planned in `subgraph_order`."""
    return _prepare(view, keys, options or PlanOptions(), subgraph_order, None)


def plan(
    view: GraphView,
    order: Sequence[int],
    keys: DimKeys,
    options: PlanOptions | None = None,
    subgraph_order: OrderRule = priority_order,
) -> Plan:
    """The plan for one order; to plan many orders of one graph, `prepare` once."""
    return prepare(view, keys, options, subgraph_order).plan(order)


def _prepare(
    view: GraphView, keys: DimKeys, options: PlanOptions, subgraph_order: OrderRule, parent: Node | None
) -> PlanInput:
    kinds = _kinds(view)
    outputs = frozenset(v for v in view.outputs if kinds[v] == NODE)
    host_nodes = options.host_nodes if parent is None and options.provider != "cpu" else frozenset()
    host = _host_values(view, options.provider, host_nodes)
    numbers: dict[tuple[SizeKey, bool], int] = {}
    key = tuple(
        -1 if k is None else numbers.setdefault((k, v in host), len(numbers))
        for v, k in enumerate(keys.values)
    )
    base = list(range(len(kinds)))
    fixed: list[tuple[int, ...]] = []
    may: list[tuple[tuple[int, tuple[int, ...]], ...]] = []
    for node in view.nodes:
        sharing = sharing_of(node, "cpu" if node.index in host_nodes else options.provider)
        always: list[int] = []
        maybe: list[tuple[int, tuple[int, ...]]] = []
        for position, value in enumerate(node.outputs):
            if value < 0 or kinds[value] != NODE:
                continue
            alias = next(_given(node, sharing.alias, position), -1)
            if value in outputs:
                # A Loop's body hands on a value that it only passes through without a copy.
                alias = node.inputs[0] if parent and parent.op == "Loop" and _passes_on(view, node) else -1
            if alias >= 0:
                base[value] = base[alias]
                continue
            sources = tuple(
                base[source]
                for source in _given(node, sharing.in_place, position)
                if value not in outputs and key[source] >= 0 and key[source] == key[value]
            )
            if sources:
                maybe.append((value, sources))
            else:
                always.append(value)
        fixed.append(tuple(always))
        may.append(tuple(maybe))
    reads = tuple(tuple(base[v] for v in node.reads()) for node in view.nodes)
    makes = tuple(tuple(base[v] for v in node.outputs if v >= 0) for node in view.nodes)
    if host_nodes:
        shared = _on_both(host_nodes, reads, makes)
        for n, choices in enumerate(may):
            kept = [(v, tuple(s for s in sources if s not in shared)) for v, sources in choices]
            may[n] = tuple(choice for choice in kept if choice[1])
            fixed[n] = (*fixed[n], *(v for v, sources in kept if not sources))
    uses = [int(kind != NODE or value in outputs) for value, kind in enumerate(kinds)]
    for read in reads:
        for value in read:
            uses[value] += 1
    takers = {v for node in view.nodes for v in node.reads()} - outputs
    reusable = frozenset(v for v, k in enumerate(keys.values) if k is not None and k[1] and v in takers)
    static = frozenset(v for v in view.outputs if _is_static(keys.values[v]))
    return PlanInput(
        view, options, tuple(base), tuple(uses), reads, tuple(fixed), tuple(may), makes, key, reusable,
        static, host, MappingProxyType(_subplans(view, keys, options, subgraph_order)),
    )  # fmt: skip


def _on_both(
    host_nodes: frozenset[int], reads: Sequence[Iterable[int]], makes: Sequence[Iterable[int]]
) -> frozenset[int]:
    """Bases that nodes on the CPU and nodes elsewhere make or read."""
    touched: tuple[set[int], set[int]] = (set(), set())
    for bases in (reads, makes):
        for node, values in enumerate(bases):
            touched[node in host_nodes].update(values)
    return frozenset(touched[0] & touched[1])


def _host_values(view: GraphView, provider: str, host_nodes: frozenset[int]) -> frozenset[int]:
    """Values in the CPU's memory on a provider with its own: made or brought there, or shapes."""
    if provider == "cpu":
        return frozenset()
    here = ("Shape", "Size", "MemcpyToHost")
    made = (n.outputs for n in view.nodes if n.index in host_nodes or n.op in here)
    return frozenset(v for outputs in made for v in outputs if v >= 0)


def _kinds(view: GraphView) -> tuple[str, ...]:
    made = (view.nodes[v.producer].op if v.kind == NODE else "" for v in view.values)
    return tuple(INITIALIZER if op == "Constant" else v.kind for v, op in zip(view.values, made, strict=True))


def _given(node: Node, pairs: Iterable[tuple[int, int]], position: int) -> Iterator[int]:
    """Inputs that stand in a pair with the output at `position` and are not left out."""
    for at, to in pairs:
        if to == position and at < len(node.inputs) and node.inputs[at] >= 0:
            yield node.inputs[at]


def _passes_on(view: GraphView, node: Node) -> bool:
    """Whether a node of a Loop's body copies a value of an earlier iteration or of outside."""
    if node.op != "Identity" or node.domain:
        return False
    value = view.values[node.inputs[0]]
    return value.kind != NODE and value.kind != INITIALIZER and value.index != view.inputs[0]


def _is_static(key: SizeKey | None) -> bool:
    return key is not None and all(isinstance(d, int) for d in key[1])


def _subplans(
    view: GraphView, keys: DimKeys, options: PlanOptions, subgraph_order: OrderRule
) -> dict[tuple[int, str], Plan]:
    plans: dict[tuple[int, str], Plan] = {}
    for node in view.nodes:
        for name, sub in node.subgraphs.items():
            at = (node.index, name)
            inner = keys.subgraphs.get(at) or DimKeys((None,) * len(sub.values), {})
            plans[at] = _prepare(sub, inner, options, subgraph_order, node).plan(subgraph_order(sub))
    return plans
