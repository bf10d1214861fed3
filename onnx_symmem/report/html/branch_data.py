"""The branches that shapes decide -> the data of a model's page: which of them run, and what a run takes.

A way is one branch of each such If; its number has a bit per If, 1 where the else branch runs. Only Ifs whose
condition is a formula are told apart, and only a few: of the others the larger branch is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx_symmem.expr.envelope import envelope
from onnx_symmem.expr.expression import Expr
from onnx_symmem.memory.profile import MemoryProfile
from onnx_symmem.report.analysis import Analysis
from onnx_symmem.report.html.formulas import FormulaTable
from onnx_symmem.run.decided import DecidedIfs

__all__ = ["branch_column", "branch_data", "told_apart"]

_MOST_IFS = 4


def told_apart(analysis: Analysis) -> DecidedIfs | None:
    """The Ifs whose branches the page tells apart; None where there are none, or several versions."""
    if analysis.branches is not None:
        return None
    decided = analysis.decided
    nodes = tuple(node for node in decided.nodes if _condition(decided, node) is not None)[:_MOST_IFS]
    return DecidedIfs(analysis.shapes, nodes, None) if nodes else None


def _condition(decided: DecidedIfs, node: int) -> Expr | None:
    """1 where the then branch of an If runs and 0 where the else branch does, as a formula of input dims."""
    shapes = decided.shapes
    value = shapes.graph.values.get(shapes.graph.view.nodes[node].inputs[0])
    found = value.items[0] if value is not None and value.items else None
    told = {*shapes.input_symbols, *shapes.domain.equalities}
    return found if isinstance(found, Expr) and found.symbols() <= told else None


def branch_data(table: FormulaTable, analysis: Analysis, decided: DecidedIfs | None) -> dict[str, Any] | None:
    """The conditions, and per way the formulas of its peak and how to read them."""
    if decided is None:
        return None
    found, nodes = analysis.profile, analysis.shapes.graph.view.nodes
    conditions = [_condition(decided, node) for node in decided.nodes]
    listed = []
    for way in range(1 << len(decided.nodes)):
        taken = ["else_branch" if way >> k & 1 else "then_branch" for k in range(len(decided.nodes))]
        rows = decided.rows(found, taken)
        top = envelope(found.in_use.take(rows), analysis.shapes.domain)
        listed.append(
            {
                "label": decided.label(found, rows),
                "members": [
                    [table.add(member), rows[row]]
                    for member, row in zip(top.members, top.member_rows, strict=True)
                ],
            }
        )
    return {
        "ifs": [nodes[node].label() for node in decided.nodes],
        "conditions": [table.add(condition) for condition in conditions if condition is not None],
        "list": listed,
    }


def branch_column(found: MemoryProfile, decided: DecidedIfs) -> Sequence[int]:
    """Per row: -1 where every run goes through it, else twice the number of its If, 1 more in its else."""
    number = {node: k for k, node in enumerate(decided.nodes)}
    return [
        2 * number[moment.node] + (moment.path[0][0] == "else_branch")
        if moment.path and moment.node in number
        else -1
        for moment in found.moments
    ]
