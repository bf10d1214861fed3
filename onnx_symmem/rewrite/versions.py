"""Several schedules of one model in one file: which one runs is decided by the shapes of its inputs.

Weights and the guard stand in the main graph, each schedule is a whole branch of nested Ifs, and what the
branches return are the outputs of the model. Nothing is duplicated but nodes: branches read weights and
inputs from outside. Outputs of constant dims are disguised, so that they are not allocated before their
branch starts (see `hiding`). Every value keeps its canonical dims, inside branches too, which is what lets
operators work in place.

Of two versions each is one If deep, of more only the first. ONNX Runtime packs no weights for kernels two Ifs
deep, so there some kernels are slower, and round otherwise than with packed weights.

A few bytes are there while a branch runs that its schedule alone would not need: one per condition, vectors
of zeros, and outputs too small to be disguised. The peaks that the guard compares include a bound of them,
or what a first emission was seen to take.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from onnx_symmem.errors import UnsupportedModel, UsageError
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.expression import Expr
from onnx_symmem.graph.view import NODE, GraphView
from onnx_symmem.memory.sizes import tensor_bytes
from onnx_symmem.remat.expansion import Expansion
from onnx_symmem.rewrite.apart import Apart, add_defaults, tell_apart, zero_vector
from onnx_symmem.rewrite.branch_order import sort_versions
from onnx_symmem.rewrite.choice import FITS, LEAST, LIMIT, Guard
from onnx_symmem.rewrite.expanded import expanded_infos, expanded_model, expanded_nodes
from onnx_symmem.rewrite.guards import GuardNodes, guard_nodes
from onnx_symmem.rewrite.hiding import hiding_inputs, is_vector_of_sizes
from onnx_symmem.rewrite.reticence import Reticence, reticent
from onnx_symmem.rewrite.value_info import write_dims
from onnx_symmem.rewrite.version_record import VersionRecord
from onnx_symmem.shapes.names import dim_text
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["BRANCH", "NO_LIMIT", "Version", "emit_versions"]

BRANCH = "symmem/versions"
"""How the names of the Ifs begin whose branches are versions."""

NO_LIMIT = (1 << 63) - 1

_SEQUENCES = 11  # the first opset with sequences
_WORTH_HIDING = 64  # bytes; smaller outputs may be allocated early


@dataclass(frozen=True)
class Version:
    """One schedule, and its peak in bytes: the maximum of `peaks`, with all that the caller counts.

    `about` is added to what the metadata says of the version (plain JSON data).
    """

    expansion: Expansion
    peaks: tuple[Expr, ...]
    about: Mapping[str, Any] = field(default_factory=dict)


def emit_versions(
    model: onnx.ModelProto,
    shapes: ModelShapes,
    versions: Sequence[Version],
    policy: str = FITS,
    domain: Domain | None = None,
    limit: int | None = None,
    rule: str = "priority",
    counted: bool = False,
    apart: bool = False,
    less: Reticence | None = None,
) -> onnx.ModelProto:
    """A copy of `model` that runs one of several schedules of its main graph.

    `shapes` must have been inferred from this model; the expansions are of its view. Policy `fits`: the first
    version whose peak is at most the input `symmem_memory_limit` (default `limit`, None: no limit); where
    none is, and always under `least`, the version of the least peak, the first of equals. `domain` (default:
    that of the shapes) is where peaks hold; outside the last version runs under `fits`, the first under
    `least`.
    `rule` is the traversal under which each branch runs as planned. `counted`: peaks are those of the emitted
    model, all that deciding takes included; else a bound of that is added to them. `apart`: repeats are
    written so that ONNX Runtime cannot merge them with what they repeat, and branches so that it keeps no
    memory pattern of them. `less` is what is not said of dims.
    A model without symbolic dims gets the one version that is chosen, without If. Raises UnsupportedModel
    where a guard cannot be written.
    """
    if policy not in (FITS, LEAST):
        raise UsageError(f"policy '{policy}' is not known; expected {FITS} or {LEAST}")
    if not versions:
        raise UsageError("no version was given; expected one or more")
    emission = _Emission(
        model, shapes, versions, policy, domain or shapes.domain, limit, rule, counted, apart,
        less or Reticence(),
    )  # fmt: skip
    return emission.result()


class _Emission:
    def __init__(
        self,
        model: onnx.ModelProto,
        shapes: ModelShapes,
        versions: Sequence[Version],
        policy: str,
        domain: Domain,
        limit: int | None,
        rule: str,
        counted: bool,
        apart: bool,
        less: Reticence,
    ) -> None:
        self.shapes, self.versions, self.counted, self.apart = shapes, versions, counted, apart
        self.policy, self.domain, self.rule = policy, domain, rule
        self.limit = NO_LIMIT if limit is None else limit
        self.written = reticent(write_dims(model, shapes), less)
        self.base: GraphView = shapes.graph.view
        if any(v.expansion.base is not self.base for v in versions):
            raise UsageError("a version is of another graph than the shapes")
        self.results = [v for v in dict.fromkeys(self.base.outputs) if self._is_made(v)]
        self.taken = {v.name for sub in self.base.walk() for v in sub.values}
        self.taken.update(i.name for v in versions for i in v.expansion.instances)
        self.hidden: dict[int, tuple[int, ...]] = {}  # by base node: positions of its inputs
        self.doubles: dict[int, str] = {}  # constant vectors of sizes: the name of their sum with zeros
        self.early = 0  # bytes of outputs that are allocated before a branch starts
        self.opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
        # A sequence that branches read: where not all that a graph is given are tensors, it has no pattern.
        self.plain = self._fresh("symmem/no_pattern") if apart and self.opset >= _SEQUENCES else ""
        self.zeros: dict[tuple[int, int], str] = {}  # vectors that keep repeats apart, by number and rank
        self.branch = BRANCH
        while any(n.name.startswith(self.branch) for sub in self.base.walk() for n in sub.nodes):
            self.branch += "_"

    def _is_made(self, value: int) -> bool:
        made = self.base.values[value]
        return made.kind == NODE and self.base.nodes[made.producer].op != "Constant"

    def result(self) -> onnx.ModelProto:
        inputs = tuple(
            (self.base.values[v].name, dims)
            for v in self.base.inputs
            if (dims := self.shapes.graph.dims[v]) is not None and not all(d.is_const for d in dims)
        )
        if len(self.versions) == 1 or not inputs:
            return self._one()
        self._hide()
        read = {self.base.nodes[n].inputs[at] for n, places in self.hidden.items() for at in places}
        sums = self._sums(v for v in sorted(read) if is_vector_of_sizes(self.shapes.graph, v))
        ranks = sorted({self._zeros_for(v) for v in read})
        held = 8 * (sum(ranks) + sum(self._zeros_for(v) for v in sums))
        overhead = 0 if self.counted else self.early + held + len(self.versions) - 1
        peaks = [tuple(e + overhead for e in v.peaks) for v in self.versions]
        made = guard_nodes(
            Guard(inputs, self.domain, tuple(peaks), self.policy), self.opset, self.taken, ranks
        )
        if self.policy == FITS and not self.counted:
            # What the guard takes before a branch starts, all at once.
            own = sum(_info_bytes(info) for info in made.infos)
            peaks = [(*p, Expr.const(own)) for p in peaks]
            guard = Guard(inputs, self.domain, tuple(peaks), self.policy)
            made = guard_nodes(guard, self.opset, self.taken, ranks)
        result = self._assembled(made, sums)
        self._describe(result, [list(map(str, p)) for p in peaks], overhead, None)
        if self.rule == "default":
            sort_versions(result, self.branch)
        return result

    # -- one version -------------------------------------------------------------------------------------
    def _one(self) -> onnx.ModelProto:
        """The model with the one version that can be chosen before the run."""
        chosen = 0
        if len(self.versions) > 1:
            # What only data decides is not known before the run either.
            peaks = [max(NO_LIMIT if e.symbols() else e.evaluate({}) for e in v.peaks) for v in self.versions]
            chosen = peaks.index(min(peaks))
            if self.policy == FITS:
                fitting = (k for k, peak in enumerate(peaks) if peak <= self.limit)
                chosen = next(fitting, len(peaks) - 1)
        expansion = self.versions[chosen].expansion
        result = expanded_model(self.written, expansion, self._told_apart(expansion))
        defaults = [zero_vector(name, rank) for (_, rank), name in sorted(self.zeros.items())]
        if defaults:
            add_defaults(result, defaults)
        self._describe(result, [list(map(str, v.peaks)) for v in self.versions], 0, chosen)
        if self.rule == "default":
            sort_versions(result, self.branch)
        return result

    # -- outputs of constant dims ------------------------------------------------------------------------
    def _hide(self) -> None:
        """Choose an input to disguise for every node that makes an output of constant dims."""
        opsets = list(self.written.opset_import)
        for value in self.results:
            dims = self.shapes.graph.dims[value]
            if dims is None or not all(d.is_const for d in dims):
                continue
            size = tensor_bytes(dims, self.shapes.graph.elem_types[value])
            known = None if size is None else size.as_int()
            node = self.base.nodes[self.base.values[value].producer]
            at: tuple[int, ...] = ()
            if known is not None and known >= _WORTH_HIDING:
                proto = self.written.graph.node[node.index]
                at = hiding_inputs(proto, node, value, self.shapes.graph, opsets)
            if not at or self.hidden.get(node.index, at) != at:
                self.early += known or 0
                continue
            self.hidden[node.index] = at

    def _zeros_for(self, value: int) -> int:
        """How many zeros disguise a value: its rank, or the length of a vector of sizes."""
        dims = self.shapes.graph.dims[value] or ()
        return dims[0].as_int() or 0 if is_vector_of_sizes(self.shapes.graph, value) else len(dims)

    def _sums(self, vectors: Iterable[int]) -> list[int]:
        """Name the sums with zeros of constant vectors; returns one of each that are equal."""
        names: dict[bytes | int, str] = {}
        first: list[int] = []
        for value in vectors:
            tensor = self.base.initializers.get(value)
            key = value if tensor is None else numpy_helper.to_array(tensor).tobytes()
            if key not in names:
                names[key] = self._fresh(f"{self.branch}/sizes_{len(names)}")
                first.append(value)
            self.doubles[value] = names[key]
        return first

    # -- the file ----------------------------------------------------------------------------------------
    def _assembled(self, made: GuardNodes, sums: Sequence[int]) -> onnx.ModelProto:
        result = onnx.ModelProto()
        result.CopyFrom(self.written)
        graph = result.graph
        weights = [n for n in self.base.nodes if n.op == "Constant" and not n.domain]
        names = {self.base.values[v].name for n in weights for v in n.outputs if v >= 0}
        constants = [self.written.graph.node[n.index] for n in weights]
        infos = [info for info in self.written.graph.value_info if info.name in names]
        del graph.node[:], graph.value_info[:]
        graph.node.extend(constants)
        graph.node.extend(made.nodes)
        for value in sums:
            name, length = self.doubles[value], self._zeros_for(value)
            added = [self.base.values[value].name, made.zeros[length]]
            graph.node.append(helper.make_node("Add", added, [name], name=name))
            infos.append(helper.make_tensor_value_info(name, TensorProto.INT64, [length]))
        if self.plain:
            made_by = helper.make_node("SequenceEmpty", [], [self.plain], self.plain, dtype=TensorProto.FLOAT)
            graph.node.append(made_by)
        graph.node.append(self._nested(made))
        graph.value_info.extend(infos)
        graph.value_info.extend(made.infos)
        graph.initializer.extend(made.initializers)
        defaults = [zero_vector(name, rank) for (_, rank), name in sorted(self.zeros.items())]
        if self.policy == FITS:
            if LIMIT in self.taken:
                raise UnsupportedModel(f"the model has a value called '{LIMIT}' already")
            defaults.insert(0, numpy_helper.from_array(np.array(self.limit, np.int64), LIMIT))
        add_defaults(result, defaults)
        return result

    def _nested(self, made: GuardNodes) -> NodeProto:
        """The first version under the first condition, else the second under the second, and so on."""
        last = len(self.versions) - 1
        inner = self._branch(last, made.zeros)
        for k in range(last - 1, -1, -1):
            names = [self.base.values[v].name for v in self.results]
            if k:
                names = [self._fresh(f"{name}/later{k}") for name in names]
            node = helper.make_node(
                "If", [made.conditions[k]], names, name=f"{self.branch}/{k}",
                then_branch=self._branch(k, made.zeros), else_branch=inner,
            )  # fmt: skip
            if not k:
                return node
            inner = helper.make_graph([node], f"{self.branch}/from_{k}", [], self._output_infos(names))
        raise AssertionError

    def _branch(self, version: int, zeros: Mapping[int, str]) -> GraphProto:
        """A whole schedule as a graph that reads weights and inputs from outside."""
        expansion = self.versions[version].expansion
        renamed = {
            self.base.values[v].name: self._fresh(f"{self.base.values[v].name}/version{version}")
            for v in self.results
        }
        nodes: list[NodeProto] = []
        hidden: dict[str, str] = {}
        told = self._told_apart(expansion, renamed)
        pairs = zip(
            expansion.steps, expanded_nodes(self.written.graph, expansion, renamed, told), strict=True
        )
        for place, (step, proto) in enumerate(pairs):
            nodes += told.before.get(place, ())
            if step.kind == "run":
                node = self.base.nodes[step.index]
                if node.op == "Constant" and not node.domain:
                    continue
                if node.index in self.hidden and not step.number:
                    for at in self.hidden[node.index]:
                        value, source = node.inputs[at], proto.input[at]
                        if value in self.doubles:
                            proto.input[at] = self.doubles[value]
                            continue
                        if source not in hidden:
                            hidden[source] = self._fresh(f"{source}/hidden{version}")
                            read = [source, zeros[self._zeros_for(value)]]
                            nodes.append(
                                helper.make_node("Reshape", read, [hidden[source]], name=hidden[source])
                            )
                        proto.input[at] = hidden[source]
            nodes.append(proto)
        outputs = [renamed[self.base.values[v].name] for v in self.results]
        if self.plain:
            length = self._fresh(f"{self.plain}/version{version}")
            nodes.append(helper.make_node("SequenceLength", [self.plain], [length], length))
        known = {*outputs, *(self.base.values[v].name for n in self.base.nodes if n.op == "Constant"
                             for v in n.outputs if v >= 0)}  # fmt: skip
        infos = expanded_infos(self.written.graph, expansion, renamed)
        infos = [info for info in (*infos, *told.infos) if info.name not in known]
        return helper.make_graph(
            nodes, f"{self.branch}/version_{version}", [], self._output_infos(outputs), value_info=infos
        )

    def _told_apart(self, expansion: Expansion, renamed: Mapping[str, str] | None = None) -> Apart:
        """What keeps the repeats of a schedule apart, if that is asked for."""
        if not self.apart:
            return Apart({}, {}, ())

        def zeros(number: int, rank: int) -> str:
            if (number, rank) not in self.zeros:
                self.zeros[number, rank] = self._fresh(f"symmem/apart/{number}_{rank}")
            return self.zeros[number, rank]

        names = [(renamed or {}).get(i.name, i.name) for i in expansion.instances]
        graph = self.written.graph
        declared = {info.name: info for infos in (graph.value_info, graph.output) for info in infos}
        return tell_apart(
            expansion, self.shapes.graph, names, zeros, self._fresh, declared, self.opset
        )  # fmt: skip

    def _output_infos(self, names: Sequence[str]) -> list[ValueInfoProto]:
        """What a branch says of its outputs: canonical dims, and only the rank of what is disguised."""
        infos: list[ValueInfoProto] = []
        for value, name in zip(self.results, names, strict=True):
            dims = self.shapes.graph.dims[value]
            declared = self.base.values[value].type
            if dims is None:
                kind = "" if declared is None else declared.WhichOneof("value")
                if declared is None or kind in ("tensor_type", None):
                    raise UnsupportedModel(
                        f"output '{self.base.values[value].name}': its rank is unknown; an If needs it"
                    )
                infos.append(ValueInfoProto(name=name, type=declared))
                continue
            hide = self.base.values[value].producer in self.hidden
            known = [None if hide else dim_text(d) for d in dims]
            infos.append(helper.make_tensor_value_info(name, self.shapes.graph.elem_types[value], known))
        return infos

    def _fresh(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def _describe(
        self, result: onnx.ModelProto, peaks: Sequence[Sequence[str]], overhead: int, chosen: int | None
    ) -> None:
        """Write into the metadata what there is to know of the versions."""
        names = [v.name for v in self.base.values]
        entries = [
            {
                "peak": list(formulas),
                "recomputed": [names[v] for v in version.expansion.recomputed],
                "offloaded": [names[v] for v in version.expansion.offloaded],
                **version.about,
            }
            for version, formulas in zip(self.versions, peaks, strict=True)
        ]
        offloads = any(v.expansion.offloaded for v in self.versions)
        VersionRecord(
            self.branch, self.policy, self.domain, self.shapes.input_symbols, self.limit, self.rule, overhead,
            entries, chosen, offloads,
        ).write(result)  # fmt: skip


def _info_bytes(info: ValueInfoProto) -> int:
    size = tensor_bytes(
        [d.dim_value for d in info.type.tensor_type.shape.dim], info.type.tensor_type.elem_type
    )
    known = None if size is None else size.as_int()
    return known or 0
