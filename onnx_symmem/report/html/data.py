"""An analysed model -> the data of its page: formulas by number, tensors and moments as columns.

A tensor's memory is a *span* of rows [from, to): the rows of the profile that it is counted in. Bytes in use
at a row are the sum of the sizes of the spans around it, so that the page needs one formula per distinct
size and no polynomial per row.

A model may hold several schedules as branches of nested Ifs and choose one when it runs (rewrite.versions).
Its rows then say which versions they are of, `first` to `last`; `versions` has for each the peaks that the
guard compares and the formulas of its own peak, so that the page shows the one run that takes place. So
have `branches` for Ifs of the model's own that shapes decide, where rows say in which `branch` they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from onnx import TensorProto

from onnx_symmem import __version__
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.expression import Expr
from onnx_symmem.graph.view import INITIALIZER, INPUT, Node
from onnx_symmem.memory.plan import ALLOC, OUTPUT, SHARE
from onnx_symmem.memory.profile import HOST, MemoryProfile, Moment
from onnx_symmem.report.analysis import Analysis
from onnx_symmem.report.findings import left_out, shape_findings
from onnx_symmem.report.html.branch_data import branch_column, branch_data, told_apart
from onnx_symmem.report.html.formulas import FormulaTable
from onnx_symmem.report.html.version_data import version_data
from onnx_symmem.report.results import SCHEMA_VERSION
from onnx_symmem.run.branches import Branches
from onnx_symmem.run.decided import DecidedIfs
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["SCOPES", "page_data", "subject_data"]

SCOPES = ("weight", "input", "output", "activation", "host", "none")
"""What a tensor counts as; none: it takes no memory of its own."""

_TYPES = {number: name.lower() for name, number in TensorProto.DataType.items()}
_LARGEST_DIM = (1 << 63) - 1


def page_data(analysis: Analysis, against: Analysis | None = None) -> dict[str, Any]:
    """All that the page shows, as plain JSON."""
    labels = [a.model.label for a in (analysis, against) if a is not None]
    names = [PurePath(label).name for label in labels]
    # Two files of the same name in different folders are told apart by their paths.
    titles = names if len(set(names)) == len(names) else labels
    return {
        "schema": "onnx-symmem/page",
        "version": SCHEMA_VERSION,
        "tool": __version__,
        "shapes": [dict(shape) for shape in analysis.at],
        "start": 0 if analysis.asked else min(1, len(analysis.at) - 1),
        "model": {"title": titles[0], **subject_data(analysis)},
        "against": None if against is None else {"title": titles[1], **subject_data(against)},
    }


def subject_data(analysis: Analysis) -> dict[str, Any]:
    """One model of the page."""
    table = FormulaTable()
    found, shapes = analysis.profile, analysis.shapes
    findings = shape_findings(shapes).to_json()
    branches, decided = analysis.branches, told_apart(analysis)
    data: dict[str, Any] = {
        "name": analysis.model.label,
        "provider": analysis.provider,
        "order": analysis.execution_order,
        "planned": analysis.planned,
        "nodes": len(found.plan.view.nodes),
        "label": found.label,
        "reasons": list(left_out(found)),
        "inputs": table.add(found.inputs),
        "weights": table.add(found.weights),
        "members": [
            [table.add(member), row]
            for member, row in zip(analysis.peak.members, analysis.peak.rows, strict=True)
        ],
        # Of versions each has its own.
        "bound": [] if branches else [table.add(member) for member in analysis.bound],
        "versions": version_data(table, analysis),
        "branches": branch_data(table, analysis, decided),
        "domain": _domain(table, shapes, analysis.data_symbols),
        "rows": _rows(found, branches, decided),
        **_tensors(table, found, shapes, branches),
        "unknown_dims": findings["unknown_dims"],
        "assumptions": findings["assumptions"],
        "limits": findings["limits"],
    }
    return {**data, "formulas": table.to_json()}


# ------------------------------------------------------------------------------------------------ symbols


def _domain(table: FormulaTable, shapes: ModelShapes, data_symbols: Sequence[str]) -> dict[str, Any]:
    """Symbols that may be set, those that follow from others, and what must hold between them."""
    domain = shapes.domain
    ties = _ties(shapes)
    free = [name for name in shapes.input_symbols if name not in ties]
    missing = {u.symbol: u for u in shapes.unknowns}
    data = []
    for name in data_symbols:
        allowed = domain.range_of(name)
        unknown = missing.get(name)
        data.append(
            {
                "name": name,
                "lo": allowed.lo,
                "hi": _finite(allowed.hi),
                "bounds": [table.add(bound) for bound in _bounds(domain, name)],
                "tensor": "" if unknown is None else unknown.tensor,
                "axis": -1 if unknown is None else unknown.axis,
                "why": "" if unknown is None else unknown.reason,
            }
        )
    return {
        "free": [_range(domain, name) for name in free],
        "tied": [[name, table.add(expr)] for name, expr in ties.items()],
        "data": data,
        "ranges": [_range(domain, name) for name in ties],
        "facts": [table.add(fact) for fact in domain.facts()],
    }


def _range(domain: Domain, name: str) -> dict[str, Any]:
    allowed = domain.range_of(name)
    return {"name": name, "lo": allowed.lo, "hi": _finite(allowed.hi), "divisor": allowed.divisor}


def _finite(high: int | None) -> int | None:
    return None if high is None or high >= _LARGEST_DIM else high


def _ties(shapes: ModelShapes) -> dict[str, Expr]:
    """Symbols that follow from others, each by free symbols only; in the order in which they are computed.

    They are what the domain has eliminated, and what the model needs in order to run: a run refuses a shape
    that breaks `total == past + seq`, so there is nothing to choose for `total`.
    """
    ties = dict(shapes.domain.equalities)
    for assumption in shapes.assumptions:
        if assumption.kind != "equal":
            continue
        difference = (assumption.left - assumption.right).substitute(ties)
        name = _alone(difference, shapes.input_symbols, (assumption.left, assumption.right))
        if name is None:
            continue
        rest = difference - Expr.symbol(name) * _slope(difference, name)
        value = -rest if _slope(difference, name) == 1 else rest
        ties = {n: expr.substitute({name: value}) for n, expr in ties.items()}
        ties[name] = value
    return ties


def _slope(difference: Expr, name: str) -> int:
    """The coefficient of a symbol, where it stands alone in one term and nowhere else; else 0."""
    symbol = Expr.symbol(name)
    for mono, c in difference.terms:
        if Expr({mono: 1}) == symbol:
            return c if name not in (difference - symbol * c).symbols() else 0
    return 0


def _alone(difference: Expr, names: Sequence[str], sides: Sequence[Expr]) -> str | None:
    """The symbol to solve for: one that is a side of its own, or else the last."""
    fit = [name for name in names if abs(_slope(difference, name)) == 1]
    plain = [name for name in fit if any(side == Expr.symbol(name) for side in sides)]
    chosen = plain or fit
    return chosen[-1] if chosen else None


def _bounds(domain: Domain, name: str) -> list[Expr]:
    """Expressions that a symbol is at most, as far as facts say so in one term."""
    symbol = Expr.symbol(name)
    found = []
    for fact in domain.facts():
        slope = _slope(fact, name)
        if slope < 0:
            found.append((fact - symbol * slope) // -slope)
    return found


# ------------------------------------------------------------------------------------------------ rows


def _node_of(found: MemoryProfile, moment: Moment, branches: Branches | None) -> tuple[Node, bool]:
    """The node that runs, of a version where it is in one, and whether that is inside control flow there."""
    node = found.plan.view.nodes[moment.node]
    for name, index in moment.path:
        if branches is None or not node.name.startswith(branches.about["branches"]) or index < 0:
            return node, True
        node = node.subgraphs[name].nodes[index]
    return node, False


def _rows(found: MemoryProfile, branches: Branches | None, decided: DecidedIfs | None) -> dict[str, Any]:
    """Moments as columns: the step, and which node runs; inside control flow the whole place in words."""
    ops: dict[str, int] = {}
    steps, op_numbers, names = [], [], []
    for row, moment in enumerate(found.moments):
        node, inside = _node_of(found, moment, branches)
        op = "" if inside else f"{node.domain}.{node.op}" if node.domain else node.op
        steps.append(moment.step)
        op_numbers.append(ops.setdefault(op, len(ops)))
        names.append(found.where(row) if inside else node.name or f"#{node.index}")
    columns: dict[str, Any] = {"step": steps, "op": op_numbers, "name": names, "ops": list(ops)}
    if branches is not None:
        passed = [branches.rows(found, version) for version in range(branches.count)]
        versions: list[list[int]] = [[] for _ in found.moments]
        for version, rows in enumerate(passed):
            for row in rows:
                versions[row].append(version)
        columns["first"] = [having[0] for having in versions]
        columns["last"] = [having[-1] for having in versions]
    if decided is not None:
        columns["branch"] = branch_column(found, decided)
    return columns


# ------------------------------------------------------------------------------------------------ tensors


def _tensors(
    table: FormulaTable, found: MemoryProfile, shapes: ModelShapes, branches: Branches | None
) -> dict[str, Any]:
    """All tensors of the main graph, those of subgraphs that take memory, and the spans of rows they do."""
    plan, view = found.plan, found.plan.view
    spans = _spans(found)
    counted = {slot for slot, _, _ in spans}
    own = len(view.values)
    slots = [*range(own), *sorted(slot for slot in counted if slot >= own)]
    number = {slot: k for k, slot in enumerate(slots)}
    shape_numbers: dict[tuple[int, ...] | None, int] = {}
    columns: dict[str, list[Any]] = {k: [] for k in ("name", "size", "scope", "type", "dims", "made", "in")}
    # Which version a tensor is of shows from its lifetime; its own name is what people look for.
    inside = None
    if branches is not None:
        prefix = re.escape(branches.about["branches"])
        inside = re.compile(rf"^(?:{prefix}/\d+/(?:then|else)_branch/)+")
    made_at = {node: row for row, node in _main_rows(found)}
    first_row: dict[int, int] = {}
    for slot, start, _ in spans:
        first_row.setdefault(slot, start)
    for slot in slots:
        size, main = found.slots[slot].bytes, slot < own
        name = found.slots[slot].name
        columns["name"].append(name if main or inside is None else inside.sub("", name))
        columns["size"].append(-1 if size is None else table.add(size))
        scope = _scope(found, slot) if main else found.slots[slot].scope
        columns["scope"].append(SCOPES.index(scope))
        dims = shapes.graph.dims[slot] if main else None
        key = None if dims is None else tuple(table.add(dim) for dim in dims)
        columns["dims"].append(shape_numbers.setdefault(key, len(shape_numbers)))
        columns["type"].append(shapes.graph.elem_types[slot] if main else 0)
        if main:
            columns["made"].append(made_at.get(view.values[slot].producer, -1))
        else:
            row = first_row[slot]
            columns["made"].append(row if _makes(found, row, found.slots[slot].name) else -1)
        shared = main and plan.kind[slot] == SHARE
        columns["in"].append(plan.root[slot] if shared else -1)
    types = sorted(set(columns["type"]))
    columns["type"] = [types.index(number) for number in columns["type"]]
    return {
        "tensors": columns,
        "types": [_TYPES.get(number, "") if number else "" for number in types],
        "dims": [None if key is None else list(key) for key in shape_numbers],
        "spans": {
            "tensor": [number[slot] for slot, _, _ in spans],
            "from": [start for _, start, _ in spans],
            "to": [end for _, _, end in spans],
        },
    }


def _main_rows(found: MemoryProfile) -> list[tuple[int, int]]:
    return [(row, moment.node) for row, moment in enumerate(found.moments) if not moment.path]


def _makes(found: MemoryProfile, row: int, name: str) -> bool:
    """Whether the node of a row inside control flow has an output of that name."""
    moment = found.moments[row]
    view, index = found.plan.view, moment.node
    for attribute, inner in moment.path:
        view, index = view.nodes[index].subgraphs[attribute], inner
        if index < 0:
            return False
    outputs = [view.values[value].name for value in view.nodes[index].outputs if value >= 0]
    return any(name == output or name.endswith(f"/{output}") for output in outputs)


def _scope(found: MemoryProfile, value: int) -> str:
    """What a value of the main graph counts as."""
    plan = found.plan
    if found.slots[value].scope == HOST:
        return HOST
    kind = plan.kind[value]
    if kind == INPUT:
        return "weight" if value in plan.view.initializers else "input"
    if kind == INITIALIZER:
        return "weight"
    if kind == SHARE:
        return "none"
    return {OUTPUT: "output", ALLOC: "activation"}.get(kind, "none")


def _spans(found: MemoryProfile) -> list[tuple[int, int, int]]:
    """(slot, first row, row after the last) of everything that is counted, in the order of allocation."""
    rows, slots, signs = found.events
    open_spans: dict[int, list[int]] = {}
    spans: list[list[int]] = []
    for row, slot, sign in zip(rows.tolist(), slots.tolist(), signs.tolist(), strict=True):
        if sign > 0:
            open_spans.setdefault(slot, []).append(len(spans))
            spans.append([slot, row, len(found.moments)])
        else:
            spans[open_spans[slot].pop()][2] = row
    # What comes and goes between two rows is in none.
    return [(slot, start, end) for slot, start, end in spans if start < end]
