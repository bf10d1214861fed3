"""Prediction beside measurement: what the plan says of every node of a run that was profiled.

The plan is made for the order that ONNX Runtime follows under the session's settings, with the dims that it
knows once the file is loaded, because those decide what works in place. Dims that no shape tells (the number
of boxes, of nonzero elements) are taken from the run; everything else has to come out equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from onnx_symmem.expr.expression import Expr
from onnx_symmem.graph.load import LoadedModel
from onnx_symmem.graph.view import GraphView, Node
from onnx_symmem.memory.execution_order import OrderRule, default_order, priority_order
from onnx_symmem.memory.plan import PlanOptions, plan
from onnx_symmem.memory.profile import Path, profile
from onnx_symmem.memory.sizes import ValueSizes, element_bits, value_sizes
from onnx_symmem.run.at_load import keys_at_load
from onnx_symmem.run.inputs import solve_for
from onnx_symmem.run.profile import NodeEvent, RunProfile
from onnx_symmem.run.session import PROVIDERS, SessionSettings
from onnx_symmem.shapes.table import GraphShapes, ModelShapes

__all__ = ["Mismatch", "NodeBytes", "Prediction", "WrongDims", "predict"]

_NOT_MADE = "it was not made in this run"


@dataclass(frozen=True, slots=True)
class NodeBytes:
    """Bytes in use after one node has computed, without what is static; `predicted` None: not predicted."""

    node: str
    op: str
    measured: int
    predicted: int | None

    @property
    def equal(self) -> bool:
        """Whether the prediction holds."""
        return self.measured == self.predicted


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A node whose bytes came out other than predicted; `difference` is measured minus predicted.

    `change` is by how much the difference grew at this very node: zero where it is inherited.
    """

    node: str
    op: str
    predicted: int
    measured: int
    change: int

    @property
    def difference(self) -> int:
        """Measured minus predicted bytes."""
        return self.measured - self.predicted


@dataclass(frozen=True, slots=True)
class WrongDims:
    """A tensor that came out with other dims than inferred."""

    tensor: str
    node: str
    inferred: str
    measured: tuple[int, ...]


@dataclass(frozen=True)
class Prediction:
    """Every node of one run, in the order they finished; `why_not` says why nothing is predicted.

    `peak` is the largest predicted number, `label` says what it is (exact; bound: of Loop and Scan bodies;
    unknown: not all is counted, for `reasons`); `taken` are dims that were read off the run.
    """

    nodes: tuple[NodeBytes, ...]
    peak: int | None = None
    label: str = ""
    why_not: str = ""
    reasons: tuple[str, ...] = ()
    taken: Mapping[str, int] = field(default_factory=dict)
    wrong_dims: tuple[WrongDims, ...] = ()

    @property
    def compared(self) -> int:
        """Nodes that have a prediction."""
        return sum(n.predicted is not None for n in self.nodes)

    @property
    def equal(self) -> int:
        """Nodes whose prediction holds."""
        return sum(n.equal for n in self.nodes)

    def mismatches(self) -> tuple[Mismatch, ...]:
        """Nodes whose prediction does not hold, in the order they ran."""
        found, before = [], 0
        for n in self.nodes:
            if n.predicted is None:
                continue
            difference = n.measured - n.predicted
            if not n.equal:
                found.append(Mismatch(n.node, n.op, n.predicted, n.measured, difference - before))
            before = difference
        return tuple(found)


def predict(
    model: LoadedModel,
    shapes: ModelShapes,
    settings: SessionSettings,
    at: Mapping[str, int],
    run: RunProfile,
    rule: OrderRule | None = None,
) -> Prediction:
    """Compare a profiled run of a model at the full shape `at` with its plan.

    `rule` gives the order of every graph, where it is not the one of the settings' traversal.
    """
    provider = PROVIDERS[settings.provider]
    static = run.static_bytes(provider)
    why_not = "" if settings.keeps_file else "ONNX Runtime changes the graph at load (optimization is on)"
    if rule is None:
        rule = priority_order if settings.execution_order == "priority" else default_order
    view = shapes.graph.view
    order = rule(view)
    if not why_not:
        why_not = _foreign(view, order, run.events, provider)
    if why_not:
        measured = run.of_provider(provider)
        nodes = [NodeBytes(e.name, e.op, (e.requested or 0) - static, None) for e in measured]
        return Prediction(tuple(nodes), why_not=why_not)
    matched = _Matched(at)
    matched.match(shapes.graph, run.events)
    sizes = _sizes(shapes.graph, matched, value_sizes(shapes.graph))
    host = {m.node for m in matched.events if m.path == () and m.event.provider != provider}
    options = PlanOptions(settings.provider, settings.mem_reuse, frozenset(host))
    memory = profile(plan(view, order, keys_at_load(model, shapes.graph), options, rule), sizes)
    in_use = memory.in_use.evaluate([matched.at])[:, 0]
    row_of = {(m.node, m.path): k for k, m in enumerate(memory.moments) if not m.bound}
    nodes = []
    rows = [k for k, m in enumerate(memory.moments) if m.bound]
    label = "bound" if rows else "exact"
    for met in matched.events:
        if met.event.provider != provider or met.event.requested is None:
            continue
        row = row_of.get((met.node, met.path)) if met.path is not None else None
        predicted = None if row is None else int(in_use[row])
        rows += [] if row is None else [row]
        nodes.append(NodeBytes(met.label, met.event.op, met.event.requested - static, predicted))
    peak = max((int(in_use[k]) for k in rows), default=0)
    reasons = tuple(f"{n.name}: {n.reason}" for n in memory.not_counted if n.reason != _NOT_MADE)
    return Prediction(
        tuple(nodes), peak, "unknown" if reasons else label, "", reasons, matched.taken, tuple(matched.wrong)
    )


def _foreign(view: GraphView, order: Sequence[int], events: Sequence[NodeEvent], provider: str) -> str:
    """Why the nodes that ran are not those of the file in the expected order; empty where they are.

    Only nodes of the session's provider must keep the order: on a GPU, shape arithmetic runs beside it.
    """
    here = _executed(view)
    ran: dict[int, str] = {}
    for event in events:
        node = here[event.index] if event.index < len(here) else -1
        if node < 0 or view.nodes[node].op != event.op:
            return (
                f"ONNX Runtime ran {event.op} '{event.name}', which is not in the file; optimise it offline"
            )
        ran[node] = event.provider
    expected = [node for node in order if not _is_constant(view.nodes[node])]
    if len(ran) < len(expected):
        return f"ONNX Runtime ran {len(ran)} of the {len(expected)} nodes of the file"
    planned = [node for node in expected if ran[node] == provider]
    for node, wanted in zip([n for n in ran if ran[n] == provider], planned, strict=True):
        if node != wanted:
            return f"ONNX Runtime ran {view.nodes[node].label()} before {view.nodes[wanted].label()}"
    return ""


def _is_constant(node: Node) -> bool:
    return node.op == "Constant" and not node.domain


def _executed(view: GraphView) -> list[int]:
    """Node index in the view by the index that ONNX Runtime counts, which is without Constant nodes."""
    return [n.index for n in view.nodes if not _is_constant(n)]


@dataclass(frozen=True, slots=True)
class _Met:
    """An event with its place in the profile's rows; `path` None: inside a Loop or Scan, which has bounds."""

    event: NodeEvent
    node: int
    path: Path | None
    label: str


class _Matched:
    """Events of a run with the nodes they belong to, and what the run tells of dims."""

    def __init__(self, at: Mapping[str, int]) -> None:
        self.at = dict(at)
        self.taken: dict[str, int] = {}
        self.wrong: list[WrongDims] = []
        self.events: list[_Met] = []
        self.seen: dict[tuple[int, int], int] = {}  # bytes by (id of the graph's shapes, value)

    def match(
        self,
        graph: GraphShapes,
        events: Sequence[NodeEvent],
        outer: _Met | None = None,
        branch: str = "",
        iterated: bool = False,
    ) -> None:
        """Walk one execution of a graph, the subgraph `branch` of the node of `outer` (None: main)."""
        here = _executed(graph.view)
        for event in events:
            node = graph.view.nodes[here[event.index]]
            if outer is None:
                met = _Met(event, node.index, (), node.label())
            else:
                path = None if iterated or outer.path is None else (*outer.path, (branch, node.index))
                met = _Met(event, outer.node, path, f"{outer.label} / {branch} / {node.label()}")
            for turn in event.graphs:
                name = _branch(graph, node, turn, self.at)
                inner = graph.subgraphs.get((node.index, name))
                if inner is not None:
                    self.match(inner, turn, met, name, iterated or node.op != "If")
            self._outputs(graph, node, event, met.label, iterated)
            self.events.append(met)

    def _outputs(self, graph: GraphShapes, node: Node, event: NodeEvent, label: str, iterated: bool) -> None:
        made = [v for v in node.outputs if v >= 0]
        if len(event.outputs) != len(made):
            return
        for value, (_, dims) in zip(made, event.outputs, strict=True):
            bits = element_bits(graph.elem_types[value])
            if bits is not None:
                size = -(-prod(dims) * bits // 8)
                self.seen[id(graph), value] = max(size, self.seen.get((id(graph), value), 0))
            inferred = graph.dims[value]
            if inferred is None or _never_made(node, len(inferred), dims):
                continue
            if not iterated and len(inferred) == len(dims):
                for dim, size in zip(inferred, dims, strict=True):
                    found = solve_for(dim - size, self.at)
                    if found is not None and found[1] >= 0:
                        self.at[found[0]] = self.taken[found[0]] = found[1]
            known = [d.evaluate(self.at) if d.symbols() <= self.at.keys() else None for d in inferred]
            wrong = len(known) != len(dims) or any(
                k is not None and k != size for k, size in zip(known, dims, strict=True)
            )
            if wrong:
                text = "[" + ", ".join(map(str, inferred)) + "]"
                self.wrong.append(WrongDims(graph.view.values[value].name, label, text, dims))


def _never_made(node: Node, rank: int, dims: tuple[int, ...]) -> bool:
    """Whether a Loop did not run at all and left an output empty, of a rank that is ONNX Runtime's guess."""
    return node.op == "Loop" and len(dims) != rank and prod(dims) == 0


def _branch(graph: GraphShapes, node: Node, turn: Sequence[NodeEvent], at: Mapping[str, int]) -> str:
    """Which subgraph of a node an execution was of: of equal operators without names the dims tell."""
    fitting = []
    for name, view in sorted(node.subgraphs.items(), reverse=True):
        here = _executed(view)
        fits = len(turn) == len(here) and all(
            e.index < len(here)
            and view.nodes[here[e.index]].op == e.op
            and view.nodes[here[e.index]].name in ("", e.name)
            for e in turn
        )
        if fits:
            fitting.append(name)
    if len(fitting) < 2:
        return "".join(fitting)
    return min(fitting, key=lambda name: _strange(graph.subgraphs.get((node.index, name)), turn, at))


def _strange(graph: GraphShapes | None, turn: Sequence[NodeEvent], at: Mapping[str, int]) -> int:
    """How many results of an execution have other dims than a graph says."""
    if graph is None:
        return sum(len(event.outputs) for event in turn)
    here, count = _executed(graph.view), 0
    for event in turn:
        made = [v for v in graph.view.nodes[here[event.index]].outputs if v >= 0]
        for value, (_, dims) in zip(made, event.outputs, strict=False):
            known = graph.dims[value]
            count += known is not None and (
                len(known) != len(dims)
                or any(
                    d.symbols() <= at.keys() and d.evaluate(at) != n for d, n in zip(known, dims, strict=True)
                )
            )
    return count


def _sizes(graph: GraphShapes, matched: _Matched, sizes: ValueSizes) -> ValueSizes:
    """Sizes with numbers where expressions are missing or speak of dims that only a run tells."""
    known: list[Expr | None] = []
    why = dict(sizes.why)
    for value, size in enumerate(sizes.bytes):
        if size is None or not size.symbols() <= matched.at.keys():
            seen = matched.seen.get((id(graph), value))
            size = None if seen is None else Expr.const(seen)
            if size is None:
                why.setdefault(value, _NOT_MADE)
            else:
                why.pop(value, None)
        known.append(size)
    inner: dict[tuple[int, str], ValueSizes] = {}
    for node in graph.view.nodes:
        for name, view in node.subgraphs.items():
            at = (node.index, name)
            sub = graph.subgraphs.get(at)
            inner[at] = _unknown(view) if sub is None else _sizes(sub, matched, sizes.subgraphs[at])
    return ValueSizes(tuple(known), why, inner)


def _unknown(view: GraphView) -> ValueSizes:
    """Sizes of a subgraph that inference did not get into."""
    inner = {(n.index, name): _unknown(sub) for n in view.nodes for name, sub in n.subgraphs.items()}
    return ValueSizes((None,) * len(view.values), {}, inner)
