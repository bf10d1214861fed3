"""The result of `report` on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from onnx_symmem.report.growth import Growth
from onnx_symmem.report.memory import MemoryReport, PeakMoment
from onnx_symmem.report.text.findings import at_text, data_note, show_findings, symbols_text
from onnx_symmem.report.text.layout import (
    QUIET,
    Unit,
    facts,
    formulas,
    heading,
    indented,
    labelled,
    list_lines,
    one_label,
    percent,
    quiet,
    sized_table,
    timeline_lines,
)

__all__ = ["show_memory"]

_TENSORS = 12  # shown one by one


def show_memory(console: Console, report: MemoryReport, detailed: Sequence[int] | None = None) -> None:
    """Formula, values at shapes, and for some of these what is in memory at the peak.

    `detailed` are the numbers of those; by default it is one shape from the middle of the domain.
    """
    console.print(Text(report.model, style="bold"))
    order = "the file's" if report.execution_order == "priority" else "ONNX Runtime's default"
    nodes = f"{report.nodes}, in {order} order; {report.in_place} outputs reuse an input's memory"
    facts(
        console,
        [
            ("symbols", symbols_text(report.findings)),
            ("provider", report.provider),
            ("nodes", nodes),
        ],
    )
    _members(console, report)
    for number, version in enumerate(report.versions):
        heading(console, labelled(f"Peak of version {number}, {version.name}", version.peak.label), "bytes")
        formulas(console, [(member, "") for member in version.peak.members], most=4)
    _values(console, report)
    if detailed is None:
        detailed = [report.shown] if report.moments else []
    for number in detailed:
        _moment(console, report, report.moments[number])
    if report.against is not None:
        _growth(console, report, report.against)
    list_lines(console, "Not counted", [(reason, "") for reason in report.peak.reasons])
    show_findings(console, report.findings)


def _members(console: Console, report: MemoryReport) -> None:
    members = report.members
    note = "bytes that nodes' results take" + (f"; the largest of {len(members)}" if len(members) > 1 else "")
    heading(console, labelled("Peak", report.peak.label), note)
    remarks = [f"at step {m.step + 1}: {m.moment}" if m.moment else "" for m in members]
    formulas(console, [(m.formula, remark) for m, remark in zip(members, remarks, strict=True)])


def _values(console: Console, report: MemoryReport) -> None:
    if not report.moments:
        return
    unit = Unit.of(n for m in report.moments for n in (m.peak, m.inputs, m.weights))
    title, one = one_label("At shapes", [m.label for m in report.moments])
    heading(console, title, f"{unit.name}; peak = activations + outputs, inputs and weights come on top")
    titles = ("peak", "activations", "outputs", "inputs", "weights", "least")
    table = sized_table(("at", "name"), *((title, "number") for title in titles))
    for m in report.moments:
        numbers = (m.peak, m.activations, m.outputs, m.inputs, m.weights, m.lower_bound)
        runs = "" if m.version is None else f", version {m.version}"
        at = f"{at_text(report.findings, m.shape)}{runs}"
        table.add_row(at if one else labelled(at, m.label), *map(unit.show, numbers))
    indented(console, table)
    data_note(console, report.findings, [m.shape for m in report.moments])
    indented(console, quiet("least: no order of these nodes can have a smaller peak"))


def _moment(console: Console, report: MemoryReport, m: PeakMoment) -> None:
    if not m.peak:
        return
    unit = Unit.of([m.peak])
    heading(console, f"In use at {at_text(report.findings, m.shape)}", f"{unit.name} over the steps")
    plain = not (console.encoding or "").lower().startswith("utf")
    for line in timeline_lines(m.timeline, unit, console.width - 2, plain):
        console.print(f"  {line}", overflow="crop", no_wrap=True)
    indented(console, quiet(f"peak at step {m.step + 1}: {m.moment}"))
    heading(console, "In memory at the peak", unit.name)
    table = sized_table((unit.name, "number"), ("share", "number"), ("tensor", "name"), ("bytes", "name"))
    for t in m.tensors[:_TENSORS]:
        name = Text(t.name)
        if t.scope == "output":
            name.append(" (output)", style=QUIET)
        table.add_row(unit.show(t.bytes), _share(t.bytes, m.peak), name, t.formula)
    rest = m.tensors[_TENSORS:]
    count, size = len(rest) + m.others, sum(t.bytes for t in rest) + m.other_bytes
    if count:
        table.add_row(unit.show(size), _share(size, m.peak), Text(f"{count} more", style=QUIET), "")
    indented(console, table)


def _growth(console: Console, report: MemoryReport, grown: Growth) -> None:
    """What grew since another model: totals per shape, tensors at the peak, operators."""
    heading(
        console,
        f"Against {grown.model}",
        f"{grown.nodes} nodes there, {report.nodes} here; what grew from it",
    )
    unit = Unit.of(n for s in grown.shapes for n in (s.total_before, s.total_after))
    table = sized_table(
        ("at", "name"), ("peak there", "number"), ("here", "number"), ("change", "number"),
        ("total there", "number"), ("here", "number"),
    )  # fmt: skip
    for s in grown.shapes:
        change = "-" if s.before is None else percent(s.after, s.before)
        totals = (unit.show(s.total_before), unit.show(s.total_after))
        table.add_row(
            at_text(report.findings, s.shape), unit.show(s.before), unit.show(s.after), change, *totals
        )
    indented(console, table)
    indented(console, quiet(f"{unit.name}; total: with inputs and weights"))
    for why in dict.fromkeys(s.why for s in grown.shapes if s.why):
        indented(console, quiet(f"not there: {why}"))
    known = [s for s in grown.shapes if s.before is not None]
    if known and (at := known[min(report.shown, len(known) - 1)]).tensors:
        unit = Unit.of(t.after for t in at.tensors)
        heading(console, f"Larger at the peak at {at_text(report.findings, at.shape)}", unit.name)
        table = sized_table(("there", "number"), ("here", "number"), ("tensor", "name"))
        for t in at.tensors[:_TENSORS]:
            table.add_row(unit.show(t.before) if t.before else "-", unit.show(t.after), t.name)
        indented(console, table)
        more = len(at.tensors[_TENSORS:]) + at.others
        if more:
            indented(console, quiet(f"... and {more} more"))
    counts = [(f"{o.op}: {o.before} -> {o.after}", "") for o in grown.operators]
    list_lines(console, "Operators whose number changed", counts, 12)


def _share(part: int, whole: int) -> str:
    return f"{part / whole * 100:.1f} %" if whole else "-"
