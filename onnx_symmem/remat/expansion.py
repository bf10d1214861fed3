"""A schedule written out as a graph of its own: every repeat a node, every instance a value.

In the expanded graph each value is made once, so that everything that holds for a graph and an order
holds for it: the plan, the profile and the peak are as exact as for any other. The first instances keep the
indices and names of the base graph; copies come behind.

An instance that nobody reads would stay in memory until the run ends. Where it is a copy, behind all outputs
that are read, and the schema of the operator lets it be left out, it is; else a `Size` reads it, which frees
it at once. (Of nodes that do the same ONNX Runtime keeps the first, and fails at load where a later one has
left out outputs.) So it is with a first instance all of whose readers read copies. What nobody reads in the
base graph stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TypeVar

from onnx import TensorProto

from onnx_symmem.errors import UsageError
from onnx_symmem.expr.expression import Expr
from onnx_symmem.graph.view import NODE, GraphView, Node, Value
from onnx_symmem.memory.sizes import DimKeys, ValueSizes
from onnx_symmem.remat.optional_outputs import is_optional
from onnx_symmem.remat.schedule import OFFLOAD, RELOAD, RUN, Step

__all__ = ["SIZE", "ExpandedStep", "Expansion", "Instance", "expand", "last_needed"]

SIZE = "size"
_OPS = {OFFLOAD: "MemcpyToHost", RELOAD: "MemcpyFromHost", SIZE: "Size"}
_SIZE_KEY = (8, ())  # an int64 scalar
_SIZE_BYTES = Expr.const(8)

_T = TypeVar("_T")
_Inner = TypeVar("_Inner")


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance of the base value `value`: the `number`-th copy of its kind, 0 for the first instance.

    `value` is -1 for the number that a `Size` makes.
    """

    value: int
    number: int
    on_host: bool
    name: str


@dataclass(frozen=True, slots=True)
class ExpandedStep:
    """One node of the expanded graph.

    `kind` is run, offload, reload, or size (frees an instance that nobody reads); `index` is the base node
    for run, else the base value; `number` counts the runs of the base node. `reads` and `makes` are instance
    ids by position, -1 where left out; `captured` are those that the node's subgraphs read.
    """

    kind: str
    index: int
    number: int
    name: str
    reads: tuple[int, ...]
    captured: tuple[int, ...]
    makes: tuple[int, ...]


@dataclass(frozen=True)
class Expansion:
    """A schedule of `base` as a graph: `steps` are its nodes, `instances` its values.

    Instances 0 .. len(base.values) - 1 are the first ones, index for index.
    """

    base: GraphView
    schedule: tuple[Step, ...]
    steps: tuple[ExpandedStep, ...]
    instances: tuple[Instance, ...]
    _memo: dict[str, GraphView] = field(default_factory=dict, compare=False, repr=False)

    def view(self) -> GraphView:
        """The expanded graph; file order is the order of the schedule."""
        if "view" not in self._memo:
            self._memo["view"] = _view(self)
        return self._memo["view"]

    def keys(self, keys: DimKeys) -> DimKeys:
        """What ONNX Runtime compares, given that of the base graph: a copy has its base value's."""
        return DimKeys(self._per_instance(keys.values, _SIZE_KEY), self._per_subgraph(keys.subgraphs))

    def sizes(self, sizes: ValueSizes) -> ValueSizes:
        """Bytes of every instance, given those of the base graph."""
        why = {k: sizes.why[i.value] for k, i in enumerate(self.instances) if i.value in sizes.why}
        return ValueSizes(
            self._per_instance(sizes.bytes, _SIZE_BYTES),
            MappingProxyType(why),
            self._per_subgraph(sizes.subgraphs),
        )

    @cached_property
    def recomputed(self) -> tuple[int, ...]:
        """Base values that are made more than once by running their node again, ascending."""
        return tuple(
            sorted({self.instances[i].value for s in self.steps if s.number and s.kind == RUN
                    for i in s.makes if i >= 0})
        )  # fmt: skip

    @cached_property
    def offloaded(self) -> tuple[int, ...]:
        """Base values that go to the host and back, ascending."""
        return tuple(sorted({s.index for s in self.steps if s.kind == OFFLOAD}))

    def _per_instance(self, values: Sequence[_T], of_size: _T) -> tuple[_T, ...]:
        return tuple(of_size if i.value < 0 else values[i.value] for i in self.instances)

    def _per_subgraph(self, inner: Mapping[tuple[int, str], _Inner]) -> Mapping[tuple[int, str], _Inner]:
        if not inner:
            return inner
        place = {s.index: k for k, s in enumerate(self.steps) if s.kind == RUN and not s.number}
        return MappingProxyType({(place[node], name): sub for (node, name), sub in inner.items()})


def expand(view: GraphView, schedule: Sequence[Step], opsets: Mapping[str, int] | None = None) -> Expansion:
    """Write a schedule out; `opsets` say which schemas apply (None: the newest).

    Raises UsageError where a step reads what is not made; `check_schedule` says all that can be wrong.
    """
    names = _Names(view)
    outputs = frozenset(view.outputs)
    latest = [v.index if v.kind != NODE else -1 for v in view.values]
    on_host: dict[int, int] = {}
    offloads = [0] * len(view.values)
    instances = [Instance(v.index, 0, False, v.name) for v in view.values]
    copies = [0] * len(view.values)
    runs = [0] * len(view.nodes)
    steps: list[ExpandedStep] = []

    def found(value: int, step: Step) -> int:
        instance = value if value < 0 else latest[value]
        if value >= 0 and instance < 0:
            reader = view.nodes[step.index].label() if step.kind == RUN else step.kind
            raise UsageError(
                f"schedule: {reader} reads '{view.values[value].name}', which is not made before"
            )
        return instance

    def new(value: int, host: bool = False) -> int:
        count = offloads if host else copies
        count[value] += 1
        name = names.fresh(f"{view.values[value].name}/{'host' if host else 'again'}")
        instances.append(Instance(value, count[value], host, name))
        return len(instances) - 1

    for step in schedule:
        if step.kind == RUN:
            node = view.nodes[step.index]
            number = runs[step.index]
            runs[step.index] += 1
            reads = tuple(found(v, step) for v in node.inputs)
            captured = tuple(sorted(found(v, step) for v in node.captured))
            makes: tuple[int, ...] = node.outputs
            if number:
                makes = tuple(-1 if v < 0 or v in outputs else new(v) for v in node.outputs)
            for value, made in zip(node.outputs, makes, strict=True):
                if made >= 0:
                    latest[value] = made
            name = names.fresh(f"{node.name}/again") if number and node.name else "" if number else node.name
            steps.append(ExpandedStep(RUN, step.index, number, name, reads, captured, makes))
            continue
        if step.kind == OFFLOAD:
            source, made = found(step.index, step), new(step.index, host=True)
            on_host[step.index] = made
        else:
            if step.index not in on_host:
                raise UsageError(f"schedule: '{view.values[step.index].name}' is reloaded, not offloaded")
            source, made = on_host[step.index], new(step.index)
            latest[step.index] = made
        name = names.fresh(f"{view.values[step.index].name}/{step.kind}")
        steps.append(ExpandedStep(step.kind, step.index, 0, name, (source,), (), (made,)))
    return _with_ends(view, tuple(schedule), steps, instances, names, opsets)


def _with_ends(
    view: GraphView,
    schedule: tuple[Step, ...],
    steps: Sequence[ExpandedStep],
    instances: list[Instance],
    names: _Names,
    opsets: Mapping[str, int] | None,
) -> Expansion:
    """The expansion in which everything that is read in the base graph, or is a copy, ends."""
    is_read = bytearray(len(instances))
    for step in steps:
        for at in (*step.reads, *step.captured):
            if at >= 0:
                is_read[at] = 1
    outputs = frozenset(view.outputs)
    kept = bytearray(len(instances))  # copies that are left in
    ended: list[ExpandedStep] = []
    for step in steps:
        if step.kind != RUN:
            ended.append(step)
            kept[step.makes[0]] = 1
            if not is_read[step.makes[0]]:
                raise UsageError(f"schedule: '{instances[step.makes[0]].name}' is never read")
            continue
        node = view.nodes[step.index]
        unread = [i for i in step.makes if i >= 0 and not is_read[i]]
        alone = len(unread) == sum(i >= 0 for i in step.makes)
        makes, sized = list(step.makes), list[int]()
        last = last_needed(step.makes, is_read)
        for position, made in enumerate(step.makes):
            if made < 0 or is_read[made]:
                continue
            copy = made >= len(view.values)
            free = position > last and is_optional(node, position, opsets)
            if copy and not (alone and made == unread[0]) and free:
                makes[position] = -1
            elif copy or (view.consumers[made] and made not in outputs):
                sized.append(made)
        if step.number:
            # Outputs of the graph have no second instance; where one is needed, it is sized as well.
            for position, (made, value) in enumerate(zip(step.makes, node.outputs, strict=True)):
                if made < 0 <= value and (position < last or not is_optional(node, position, opsets)):
                    name = names.fresh(f"{view.values[value].name}/again")
                    instances.append(Instance(value, 1, False, name))
                    kept.append(0)
                    makes[position] = len(instances) - 1
                    sized.append(makes[position])
        for made in makes:
            if made >= 0:
                kept[made] = 1
        ended.append(replace(step, makes=tuple(makes)))
        for made in sized:
            name = names.fresh(f"{instances[made].name}/end")
            instances.append(Instance(-1, 0, False, name))
            kept.append(1)
            at = len(instances) - 1
            ended.append(ExpandedStep(SIZE, instances[made].value, 0, name, (made,), (), (at,)))
    number: dict[int, int] = {}
    for at in range(len(instances)):
        if at < len(view.values) or kept[at]:
            number[at] = len(number)

    def renumbered(ids: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(number[i] if i >= 0 else -1 for i in ids)

    return Expansion(
        view,
        schedule,
        tuple(
            replace(s, reads=renumbered(s.reads), captured=renumbered(s.captured), makes=renumbered(s.makes))
            for s in ended
        ),
        tuple(instances[at] for at in number),
    )


def _view(expansion: Expansion) -> GraphView:
    base = expansion.base
    producer = {i: k for k, step in enumerate(expansion.steps) for i in step.makes if i >= 0}
    values: list[Value] = []
    for at, instance in enumerate(expansion.instances):
        if instance.value < 0:
            values.append(Value(at, instance.name, NODE, producer[at], TensorProto.INT64, ()))
            continue
        value = base.values[instance.value]
        values.append(replace(value, index=at, name=instance.name, producer=producer.get(at, -1)))
    nodes: list[Node] = []
    for k, step in enumerate(expansion.steps):
        if step.kind == RUN:
            node = base.nodes[step.index]
            renamed = {expansion.instances[i].value: i for i in step.captured}
            subgraphs = {name: _recaptured(sub, renamed, expansion) for name, sub in node.subgraphs.items()}
            nodes.append(
                replace(
                    node, index=k, name=step.name, inputs=step.reads, outputs=step.makes,
                    captured=step.captured, subgraphs=MappingProxyType(subgraphs),
                )
            )  # fmt: skip
        else:
            nodes.append(
                Node(
                    k, step.name, _OPS[step.kind], "", step.reads, step.makes, (), MappingProxyType({}),
                    MappingProxyType({}),
                )
            )  # fmt: skip
    return GraphView(
        base.name, tuple(values), tuple(nodes), base.inputs, base.outputs, base.initializers, base.outer
    )


def _recaptured(sub: GraphView, instance: Mapping[int, int], expansion: Expansion) -> GraphView:
    """A subgraph that reads other instances of the values around it."""
    if all(instance[at] == at for at in sub.outer.values()):
        return sub
    outer = {mine: instance[at] for mine, at in sub.outer.items()}
    names = {mine: expansion.instances[at].name for mine, at in outer.items()}
    return replace(_with_outer_names(sub, names), outer=MappingProxyType(outer))


def _with_outer_names(sub: GraphView, names: Mapping[int, str]) -> GraphView:
    values = tuple(replace(v, name=names[v.index]) if v.index in names else v for v in sub.values)
    nodes = []
    for node in sub.nodes:
        inner = {
            name: _with_outer_names(below, {mine: values[at].name for mine, at in below.outer.items()})
            for name, below in node.subgraphs.items()
        }
        nodes.append(replace(node, subgraphs=MappingProxyType(inner)) if inner else node)
    return replace(sub, values=values, nodes=tuple(nodes))


class _Names:
    """Names that are new to a graph and everything below it."""

    def __init__(self, view: GraphView) -> None:
        self.taken = {v.name for sub in view.walk() for v in sub.values}
        self.taken.update(n.name for sub in view.walk() for n in sub.nodes)
        self.next: dict[str, int] = {}

    def fresh(self, stem: str) -> str:
        """`<stem><k>` with the least k from 1 that is free."""
        k = self.next.get(stem, 1)
        while f"{stem}{k}" in self.taken:
            k += 1
        self.next[stem] = k + 1
        self.taken.add(f"{stem}{k}")
        return f"{stem}{k}"


def last_needed(makes: Sequence[int], is_read: Sequence[int]) -> int:
    """The position of the last output of a run that is read; of the first that it makes where none is."""
    made = [(position, instance) for position, instance in enumerate(makes) if instance >= 0]
    return max((p for p, i in made if is_read[i]), default=made[0][0] if made else -1)
