"""The versions of a model -> the data of its page: what decides among them, and what each takes.

The guard in the file decides inside the shapes that were planned, and runs one certain version outside; the
page has the same facts and the same rule (rewrite.choice).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from onnx_symmem.expr.envelope import envelope
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.text import parse
from onnx_symmem.report.analysis import Analysis
from onnx_symmem.report.html.formulas import FormulaTable
from onnx_symmem.rewrite.choice import FITS

__all__ = ["version_data"]

_LARGEST_DIM = (1 << 63) - 1
_RANGE = re.compile(r"(?P<lo>\d+)\.\.(?P<hi>\d+|inf)(?: step (?P<step>\d+))?")


def version_data(table: FormulaTable, analysis: Analysis) -> dict[str, Any] | None:
    """What the guard compares, each version's own peak and bound; None for a model with one schedule."""
    branches, found = analysis.branches, analysis.profile
    if branches is None:
        return None
    said = branches.about
    listed = []
    for version, entry in enumerate(said["versions"]):
        rows = branches.rows(found, version)
        top = envelope(found.in_use.take(rows), analysis.shapes.domain)
        listed.append(
            {
                "name": branches.name(version),
                "label": branches.label(found, version),
                "peak": [table.add(parse(text)) for text in entry["peak"]],
                "members": [
                    [table.add(member), rows[row]]
                    for member, row in zip(top.members, top.member_rows, strict=True)
                ],
                "bound": [table.add(member) for member in analysis.version_bounds[version]],
                "recomputed": list(entry["recomputed"]),
                "offloaded": list(entry["offloaded"]),
            }
        )
    limit = said.get("limit", {}).get("default")
    return {
        "policy": said["policy"],
        "limit": limit if limit is not None and limit < _LARGEST_DIM else None,
        "outside": said["outside"],
        "planned": [table.add(fact) for fact in _planned(said["domain"])],
        "compared": _compared(said, set(analysis.shapes.input_symbols)),
        "list": listed,
    }


def _compared(said: Mapping[str, Any], told: set[str]) -> int:
    """How many versions the guard computes peaks of: not of the last where only data tells it."""
    formulas = [parse(text) for text in said["versions"][-1]["peak"]]
    known = all(formula.symbols() <= told for formula in formulas)
    return len(said["versions"]) - (said["policy"] == FITS and not known)


def _planned(domain: Mapping[str, Any]) -> list[Expr]:
    """What must not be negative inside the shapes that were planned."""
    found = [parse(fact.removesuffix(" >= 0")) for fact in domain["facts"]]
    for name, text in domain["ranges"].items():
        symbol, span = Expr.symbol(name), _RANGE.fullmatch(text)
        assert span is not None, text
        found.append(symbol - int(span["lo"]))
        if span["hi"] != "inf":
            found.append(int(span["hi"]) - symbol)
        if span["step"]:
            found.append(-(symbol % int(span["step"])))
    for name, text in domain["equal"].items():
        difference = Expr.symbol(name) - parse(text)
        found += [difference, -difference]
    return found
