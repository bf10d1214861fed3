"""Shape findings on the terminal: symbols, unknown dims, assumptions, limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console

from onnx_symmem.expr.shape_text import dim_name
from onnx_symmem.report.results import ShapeFindings, SymbolFigures
from onnx_symmem.report.text.layout import indented, list_lines, quiet, shape_text

__all__ = ["at_text", "data_note", "show_findings", "symbols_text"]

_CONTRADICTIONS = ("never", "contradicted")  # kinds of assumptions that no shape meets


def at_text(findings: ShapeFindings, shape: Mapping[str, int]) -> str:
    """The sizes of the dims of the inputs at a shape."""
    return shape_text({s.name: shape[s.name] for s in findings.symbols if s.name in shape})


def data_note(console: Console, findings: ShapeFindings, shapes: Sequence[Mapping[str, int]]) -> None:
    """Says which sizes at the shapes stand for what only data decides, where there are any."""
    inputs = {s.name for s in findings.symbols}
    names = [u.symbol for u in findings.unknown_dims if u.symbol]
    used = [name for name in dict.fromkeys(names) if any(name in s for s in shapes) and name not in inputs]
    if used:
        text = f"sizes that depend on data are the largest possible: {', '.join(used)}"
        indented(console, quiet(text))


def symbols_text(findings: ShapeFindings) -> str:
    """The symbols with their ranges, e.g. `batch in 1..64, seq >= 1`."""
    return ", ".join(map(_range, findings.symbols)) or "none"


def _range(symbol: SymbolFigures) -> str:
    name = dim_name(symbol.name)
    if symbol.hi is None:
        text = f"{name} >= {symbol.lo}"
    elif symbol.hi == symbol.lo:
        return f"{name} = {symbol.lo}"
    else:
        text = f"{name} in {symbol.lo}..{symbol.hi}"
    return text if symbol.divisor == 1 else f"{text} (multiples of {symbol.divisor})"


def show_findings(console: Console, findings: ShapeFindings, most: int = 8) -> None:
    """Parts for what stayed unknown or had to be assumed; nothing where there is nothing to say."""
    unknown = []
    for u in findings.unknown_dims:
        dim = f"{u.tensor}[{u.axis}]" if u.axis >= 0 else u.tensor
        named = f" = {u.symbol}" if u.symbol else ""
        bound = f" <= {u.bound}" if u.bound is not None else ""
        unknown.append((f"{dim}{named}{bound}", f"{u.node or u.op}: {u.reason}"))
    list_lines(console, "Unknown dims", unknown, most)
    wrong = [(a.text, a.node) for a in findings.assumptions if a.kind in _CONTRADICTIONS]
    list_lines(console, "Contradictions", wrong, most, "the model says two things that cannot both be")
    needed = [a for a in findings.assumptions if a.kind not in ("declared", *_CONTRADICTIONS)]
    assumed = [(a.text, ": ".join(t for t in (a.node, a.reason) if t and t != a.text)) for a in needed]
    list_lines(console, "Assumptions", assumed, most, "what the model needs in order to run")
    declared = [(a.text, a.node) for a in findings.assumptions if a.kind == "declared"]
    list_lines(console, "Declared otherwise", declared, most, "the file says so; not used")
    list_lines(
        console, "Limits", [(limit.text, f"{limit.node}: {limit.reason}") for limit in findings.limits], most
    )
