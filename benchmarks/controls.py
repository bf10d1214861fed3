"""Controls: what looks as if it saved memory and does not, beside what does, measured.

Repeats that ONNX Runtime undoes or pays for twice, on a training step and on the smallest graph that shows
them. There a tensor of 8 units is read early and late, and 16 units are needed in between: keeping it takes
25, making it again takes 17. All figures are bytes of tensors at the peak as ONNX Runtime's profile has them,
on its CPU provider, without memory pattern and reuse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, helper

from benchmarks.case import case_of
from benchmarks.document import Finding, Page, Table
from benchmarks.gpu.runner import figures, opened
from benchmarks.skeletons import AGAIN, UNIT, choose, node_of, skeletons, static_output, unread
from models.mlp_train import build_mlp_train
from onnx_symmem.expr.domain import Domain
from onnx_symmem.graph.load import LoadedModel, load_model
from onnx_symmem.memory.execution_order import priority_order
from onnx_symmem.memory.sizes import from_written
from onnx_symmem.order.planner import plan_order
from onnx_symmem.remat.expansion import Expansion, expand
from onnx_symmem.remat.levels import Level, LevelOptions, plan_levels
from onnx_symmem.rewrite.choice import LIMIT
from onnx_symmem.rewrite.expanded import expanded_infos, expanded_model, expanded_nodes
from onnx_symmem.rewrite.value_info import write_dims
from onnx_symmem.rewrite.versions import Version, emit_versions
from onnx_symmem.run.inputs import generate_inputs
from onnx_symmem.run.kept_levels import KeptByFile
from onnx_symmem.run.session import SessionSettings, kept, shipped
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["Ran", "Repeats", "run"]

_SHAPE = {"batch": 512}
_MODEL = "A residual perceptron of 4 blocks and width 128"
_LEVELS, _SLOWDOWN = 3, 2.0
_COLUMNS = ("pattern", "again", "peak", "of keeping all", "nodes run", "outputs")
_ANCHORED = "aliased repeats and anchors, all"
_NO_CSE = (("optimization.disable_specified_optimizers", "CommonSubexpressionElimination"),)


@dataclass(frozen=True, slots=True)
class Ran:
    """One measured run: bytes of tensors at the peak, nodes that ran, and the outputs."""

    peak: int
    nodes: int
    outputs: Mapping[str, np.ndarray]

    def same(self, other: Ran) -> bool:
        """Whether both gave the same bits."""
        return all(np.array_equal(self.outputs[name], other.outputs[name]) for name in other.outputs)


def _ran(
    model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], settings: SessionSettings | None = None
) -> Ran:
    """The model under settings that keep its plan, or under others."""
    loaded = load_model(model)
    with opened(loaded, "cpu", settings or kept()) as runner:
        names = [output.name for output in runner.session.get_outputs()]
        known = {i.name for i in runner.session.get_inputs()}
        known |= {i.name for i in runner.session.get_overridable_initializers()}
        outputs = runner.run({k: v for k, v in feeds.items() if k in known}, names)
        profile = runner.profiles()[0]
    return Ran(figures(profile, profile, "cpu")[0], sum(e.op != "If" for e in profile.walk()), outputs)


# ------------------------------------------------------------------------------------- a training step


@dataclass(frozen=True)
class Repeats:
    """A training step and its levels, of which the last repeats most."""

    shapes: ModelShapes
    proto: onnx.ModelProto
    levels: tuple[Level, ...]

    @classmethod
    def of(cls, model: onnx.ModelProto, shape: Mapping[str, int]) -> Repeats:
        """Plan the order and levels from it, steered by one shape."""
        loaded: LoadedModel = load_model(model)
        case = case_of(loaded)
        given = {"onnxruntime": case.before.plan.order, "file": case.file}
        chosen = plan_order(
            case.prepared, case.sizes, case.domain, (shape,), case.before, given
        ).choice.chosen
        shapes = infer_shapes(loaded.view(), Domain())
        order = priority_order(shapes.graph.view, chosen.order)
        levels = plan_levels(
            shapes.graph, from_written(shapes.graph), shapes.domain, order, [shape],
            LevelOptions(_LEVELS, _SLOWDOWN), opsets=loaded.view().opsets,
        )  # fmt: skip
        return cls(shapes, write_dims(loaded.proto, shapes), levels)

    def expansion(self, level: int) -> Expansion:
        """The schedule of a level as a graph."""
        return expand(self.shapes.graph.view, self.levels[level].schedule, self.shapes.view.opsets)

    def duplicated(self, level: int) -> onnx.ModelProto:
        """The nodes of a level one after the other, repeats beside what they repeat, without any If."""
        return expanded_model(self.proto, self.expansion(level))

    def aliased(self) -> onnx.ModelProto:
        """The same of the last level, where repeats read aliases of what would make them equal."""
        return emit_versions(self.proto, self.shapes, self._versions()[1:], apart=True)

    def naive(self) -> onnx.ModelProto:
        """The last level with every repeat in an If of its own, whose other branch returns what was made."""
        expansion = self.expansion(-1)
        result = expanded_model(self.proto, expansion)
        kinds = {i.name: i for i in result.graph.value_info}
        nodes = []
        for step, node in zip(expansion.steps, result.graph.node, strict=True):
            if step.kind != "run" or not step.number:
                nodes.append(node)
                continue
            made = [name for name in node.output if name]
            base = [expansion.base.values[v].name for v in expansion.base.nodes[step.index].outputs if v >= 0]
            first = [b for b, name in zip(base, node.output, strict=False) if name]
            nodes.append(_either(node, made, first, kinds))
        del result.graph.node[:]
        result.graph.node.extend(nodes)
        result.graph.input.append(helper.make_tensor_value_info(AGAIN, TensorProto.BOOL, []))
        return result

    def branched(self) -> onnx.ModelProto:
        """The last level, else level 0, as whole branches that declare their outputs as the model does."""
        graphs = []
        for level, way in ((-1, "again"), (0, "once")):
            expansion = self.expansion(level)
            names = {o.name: f"{o.name}/{way}" for o in self.proto.graph.output}
            outputs = []
            for info in self.proto.graph.output:
                outputs.append(ValueInfoProto(name=names[info.name], type=info.type))
            infos = [
                i for i in expanded_infos(self.proto.graph, expansion, names) if i.name not in names.values()
            ]
            nodes = expanded_nodes(self.proto.graph, expansion, names)
            graphs.append(helper.make_graph(nodes, way, [], outputs, value_info=infos))
        result = onnx.ModelProto()
        result.CopyFrom(self.proto)
        del result.graph.node[:], result.graph.value_info[:]
        result.graph.node.append(choose([o.name for o in self.proto.graph.output], *graphs))
        result.graph.input.append(helper.make_tensor_value_info(AGAIN, TensorProto.BOOL, []))
        return result

    def ours(self) -> onnx.ModelProto:
        """What `optimize` writes of level 0 and the last."""
        return emit_versions(self.proto, self.shapes, self._versions())

    def anchored(self, shape: Mapping[str, int]) -> onnx.ModelProto:
        """What it writes with anchors; orders are judged at a shape."""
        kept = KeptByFile(LoadedModel(self.proto, None, None), self.shapes.domain, [shape])
        return kept.keeping(emit_versions(self.proto, self.shapes, self._versions(), apart=True))

    def _versions(self) -> list[Version]:
        return [
            Version(self.expansion(level), self.levels[level].peak.members, {"level": number})
            for number, level in enumerate((0, -1))
        ]


def _either(
    node: NodeProto, made: Sequence[str], first: Sequence[str], kinds: Mapping[str, ValueInfoProto]
) -> NodeProto:
    """If(again){node}else{Identity of what was made first}."""
    copy = NodeProto()
    copy.CopyFrom(node)
    inner = {name: f"{name}/repeat" for name in made}
    copy.output[:] = [inner.get(name, name) for name in node.output]
    kept = [node_of("Identity", [source], f"{name}/kept") for source, name in zip(first, made, strict=True)]
    branches = []
    for nodes, names in (([copy], inner.values()), (kept, [n.output[0] for n in kept])):
        outputs = [ValueInfoProto(name=o, type=kinds[m].type) for o, m in zip(names, made, strict=True)]
        branches.append(helper.make_graph(nodes, f"{node.name}/{len(branches)}", [], outputs))
    return choose(made, *branches)


# ------------------------------------------------------------------------------------------------ tables


def run(only: Sequence[str] = ()) -> Page:
    """The page of the benchmark; `only` is not used, there is one model."""
    del only
    small, wrong = _small_rows()
    train, more = _train_rows(Repeats.of(build_mlp_train(64, 128, 4), _SHAPE), _SHAPE)
    naive, ours = _of(small, "naive If", "yes"), _of(small, "region If", "yes")
    on_train = _of(train, "naive If", "yes"), _of(train, "multi-version If", "yes")
    merged = _of(train, "duplicates, basic", "-")
    aliased = _of(train, "aliased repeats, basic", "-"), _of(train, _ANCHORED, "yes")
    return Page(
        "controls",
        "Controls: what saves nothing, and what does",
        (__doc__ or "").partition("\n\n")[2],
        (
            Finding(
                "naive If / keeping all (smallest graph, training step)",
                f"{naive:.3f}, {on_train[0]:.3f}", ">= 1: it saves nothing", min(naive, on_train[0]) >= 1,
            ),
            Finding(
                "duplicates without If at level basic / keeping all", f"{merged:.3f}",
                ">= 1: they are merged away", merged >= 1,
            ),
            Finding(
                "region If (smallest graph), multi-version If (training step) / keeping all",
                f"{ours:.3f}, {on_train[1]:.3f}", "< 1", max(ours, on_train[1]) < 1,
            ),
            Finding(
                "aliased repeats at level basic, with anchors in a plain session / keeping all",
                f"{aliased[0]:.3f}, {aliased[1]:.3f}", "< 1", max(aliased) < 1,
            ),
        ),
        (
            Table("controls_small", "The smallest graph", _COLUMNS, small, "Peaks in units of x.", 2),
            Table(
                "controls_train", "A training step", _COLUMNS, train,
                f"""{_MODEL} at batch {_SHAPE["batch"]}; peaks in MiB. The last level, written in every way;
                where it says no, `again` is false. `basic` loads the file with ONNX Runtime's optimiser on,
                beside keeping all loaded so: it merges what is repeated within one graph, the branch of a
                version too. `aliased repeats` read aliases, which nothing merges; with anchors, as
                `--delivery anchors` writes levels, they are loaded by a session that is told nothing: all
                optimisations, memory pattern and reuse. Outputs are compared with those of keeping all, bit
                by bit.""",
            ),
        ),
        (),
        (*wrong, *more),
    )  # fmt: skip


_Rows = tuple[tuple[str | int | float, ...], ...]


def _of(rows: _Rows, pattern: str, again: str) -> float:
    return next(float(row[3]) for row in rows if row[:2] == (pattern, again))


def _row(pattern: str, again: str, found: Ran, before: Ran, unit: int) -> tuple[str | int | float, ...]:
    words = "equal" if found.same(before) else "differ"
    return (pattern, again, found.peak / unit, found.peak / before.peak, found.nodes, words)


def _small_rows() -> tuple[_Rows, list[str]]:
    feeds = {"x": np.random.default_rng(0).standard_normal((1, UNIT), dtype=np.float32)}
    models = skeletons()
    before = _ran(models["kept"], {**feeds, AGAIN: np.array(False)})
    rows = []
    for name, model in models.items():
        ways = ("no", "yes") if any(n.op_type == "If" for n in model.graph.node) else ("-",)
        for again in ways:
            found = _ran(model, {**feeds, AGAIN: np.array(again == "yes")})
            rows.append(_row(name, again, found, before, 4 * UNIT))
    for name, build, first in (
        ("a result nobody reads", unread, ("kept", "with a Size on it")),
        ("output of a branch", static_output, ("of dims known when it is made", "of constant dims")),
    ):
        base = _ran(build(False), {**feeds, AGAIN: np.array(True)})
        for flag, words in enumerate(first):
            found = _ran(build(bool(flag)), {**feeds, AGAIN: np.array(True)})
            rows.append(_row(f"{name}, {words}", "-", found, base, 4 * UNIT))
    wrong = [f"{row[0]}, again {row[1]}: outputs differ" for row in rows if row[5] != "equal"]
    return tuple(rows), wrong


def _train_rows(model: Repeats, shape: Mapping[str, int]) -> tuple[_Rows, list[str]]:
    """Every way to write the last level of a model, measured at a shape."""
    feeds = generate_inputs(model.shapes, shape)
    basic = replace(kept(), optimization="basic")
    before, plain = _ran(model.duplicated(0), feeds), _ran(model.duplicated(0), feeds, basic)
    rows = [_row("kept", "-", before, before, 1 << 20)]
    last = model.duplicated(-1)
    for words, settings, base in (
        ("duplicates, none", None, before),
        ("duplicates, basic", basic, plain),
        ("duplicates, basic without CSE", replace(basic, config=_NO_CSE), plain),
    ):
        rows.append(_row(words, "-", _ran(last, feeds, settings), base, 1 << 20))
    rows.append(_row("aliased repeats, basic", "-", _ran(model.aliased(), feeds, basic), plain, 1 << 20))
    anchored, told_nothing = model.anchored(shape), shipped()
    unlimited = {**feeds, LIMIT: np.array(1 << 62, np.int64)}
    own = _ran(anchored, unlimited, told_nothing)
    for again in ("no", "yes"):
        flag = np.array(again == "yes")
        # With `again` fed as the limit: the first version fits where nothing has to be repeated.
        need = np.array(0 if flag else (1 << 62), np.int64)
        given = {**feeds, AGAIN: flag, LIMIT: need}
        rows.append(_row("naive If", again, _ran(model.naive(), given), before, 1 << 20))
        rows.append(_row("If of constant outputs", again, _ran(model.branched(), given), before, 1 << 20))
        rows.append(_row("multi-version If", again, _ran(model.ours(), given), before, 1 << 20))
        optimised = _ran(model.ours(), given, basic)
        rows.append(_row("multi-version If, basic", again, optimised, plain, 1 << 20))
        rows.append(_row(_ANCHORED, again, _ran(anchored, given, told_nothing), own, 1 << 20))
    wrong = [f"{row[0]}, again {row[1]}: outputs differ" for row in rows if row[5] != "equal"]
    return tuple(rows), wrong
