"""A memory report as Markdown: the facts of the terminal's report, in tables that forges and wikis show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from onnx_symmem.report.growth import Growth, GrowthAt
from onnx_symmem.report.memory import MemoryReport, PeakMoment
from onnx_symmem.report.results import PeakFigures, ShapeFindings
from onnx_symmem.report.text.findings import at_text, symbols_text
from onnx_symmem.report.text.layout import Unit, labelled, one_label, percent, timeline_lines

__all__ = ["markdown"]

_TENSORS = 20  # listed one by one
_CHART = 72  # columns
_HOW = {
    "exact": "exact, to the byte",
    "bound": "upper bound: the larger branch, the largest iteration",
    "unknown": "without what is listed as not counted",
}
# An underscore inside a word is none of Markdown's signs.
_SPECIAL = re.compile(r"[\\`*|<\[\]]|(?<!\w)_|_(?!\w)")
_NOT_MODELLED = (
    "scratch memory of kernels",
    "gaps and rounding in the arena",
    "copies of weights for kernels",
    "later runs of a session with a memory pattern",
)


def markdown(report: MemoryReport) -> str:
    """The report as one Markdown document."""
    order = "the file's" if report.execution_order == "priority" else "ONNX Runtime's default"
    parts = [
        f"# Memory of {_text(report.model)}",
        (
            f"{report.nodes:,} nodes in {order} order, execution provider {report.provider}; "
            f"{report.in_place:,} outputs reuse an input's memory. "
            f"Dims: {_text(symbols_text(report.findings))}."
        ),
        *(f"> {_text(notice)}" for notice in report.notices),
        *_peak(report),
        *_versions(report),
        *_shapes(report),
    ]
    if report.moments:
        parts += _moment(report, report.moments[report.shown])
    if report.against is not None:
        parts += _growth(report, report.against)
    parts += _coverage(report)
    parts += _findings(report.findings)
    return "\n\n".join(parts) + "\n"


# ------------------------------------------------------------------------------------------------ parts


def _peak(report: MemoryReport) -> list[str]:
    rows = [
        (_code(m.formula), f"{m.step + 1:,}" if m.moment else "", _text(m.moment)) for m in report.members
    ]
    many = f"the largest of these {len(rows)}" if len(rows) > 1 else "this, at every shape"
    note = f"Bytes that the results of nodes take: {many}. Inputs and weights come on top."
    return [f"## {labelled('Peak', report.peak.label)}", note, _table(("bytes", "step:", "node"), rows)]


def _versions(report: MemoryReport) -> list[str]:
    if not report.versions:
        return []
    rows = [
        (
            str(number),
            _text(version.name),
            _HOW[version.peak.label],
            "; ".join(_text(at_text(report.findings, report.moments[k].shape)) for k in version.runs_at),
            _code(version.peak.formula),
        )
        for number, version in enumerate(report.versions)
    ]
    note = (
        "The file holds several schedules. Shapes decide which one runs, and a memory limit where it has one."
    )
    titles = ("version:", "name", "how well", "runs at", "peak in bytes")
    return ["## Versions", note, _table(titles, rows)]


def _shapes(report: MemoryReport) -> list[str]:
    if not report.moments:
        return []
    unit = Unit.of(n for m in report.moments for n in (m.peak, m.inputs, m.weights))
    titles = ("shape", "peak:", "activations:", "outputs:", "inputs:", "weights:", "least:", "peak in bytes:")
    title, one = one_label("## At shapes", [m.label for m in report.moments])
    rows = []
    for m in report.moments:
        numbers = (m.peak, m.activations, m.outputs, m.inputs, m.weights, m.lower_bound)
        runs = "" if m.version is None else f", version {m.version}"
        at = at_text(report.findings, m.shape) + runs
        shape = _text(at if one else labelled(at, m.label))
        rows.append((shape, *map(unit.show, numbers), f"{m.peak:,}"))
    note = f"{unit.name}. Least: no order of these nodes can have a smaller peak."
    used = [
        u.symbol for u in report.findings.unknown_dims if any(u.symbol in m.shape for m in report.moments)
    ]
    if used:
        note += f" Sizes that depend on data are the largest possible: {', '.join(dict.fromkeys(used))}."
    return [title, note, _table(titles, rows)]


def _moment(report: MemoryReport, m: PeakMoment) -> list[str]:
    if not m.peak:
        return []
    unit = Unit.of([m.peak])
    chart = "\n".join(("```text", *timeline_lines(m.timeline, unit, _CHART), "```"))
    shown, rest = m.tensors[:_TENSORS], m.tensors[_TENSORS:]
    rows = [
        (_code(t.name), t.scope, unit.show(t.bytes), _share(t.bytes, m.peak), _code(t.formula)) for t in shown
    ]
    count, size = len(rest) + m.others, sum(t.bytes for t in rest) + m.other_bytes
    if count:
        rows.append((f"{count:,} more", "", unit.show(size), _share(size, m.peak), ""))
    return [
        f"## In use at {_text(at_text(report.findings, m.shape))}",
        f"{unit.name} over the steps; the peak is at step {m.step + 1:,}: {_text(m.moment)}.",
        chart,
        "### In memory at the peak",
        _table(("tensor", "counts as", f"{unit.name}:", "share:", "bytes"), rows),
    ]


def _growth(report: MemoryReport, grown: Growth) -> list[str]:
    unit = Unit.of(n for s in grown.shapes for n in (s.total_before, s.total_after))
    rows = [
        (
            _text(at_text(report.findings, s.shape)),
            unit.show(s.before),
            unit.show(s.after),
            "-" if s.before is None else percent(s.after, s.before),
            unit.show(s.total_before),
            unit.show(s.total_after),
            _text(s.why),
        )
        for s in grown.shapes
    ]
    titles = ("shape", "peak before:", "peak after:", "change:", "total before:", "total after:", "")
    parts = [
        f"## Against {_text(grown.model)}",
        (
            f"{unit.name}; before is {_text(grown.model)}, total has inputs and weights. "
            f"Nodes: {grown.nodes:,} before, {report.nodes:,} after."
        ),
        _table(titles, rows),
    ]
    parts += _grown_tensors(report, grown.shapes)
    if grown.operators:
        counts = [(_code(o.op), f"{o.before:,}", f"{o.after:,}") for o in grown.operators]
        parts += ["### Operators", _table(("operator", "nodes before:", "nodes after:"), counts)]
    return parts


def _grown_tensors(report: MemoryReport, shapes: Sequence[GrowthAt]) -> list[str]:
    known = [s for s in shapes if s.before is not None]
    if not known or not (at := known[min(report.shown, len(known) - 1)]).tensors:
        return []
    unit = Unit.of(t.after for t in at.tensors)
    rows = [
        (_code(t.name), unit.show(t.before) if t.before else "not there", unit.show(t.after))
        for t in at.tensors[:_TENSORS]
    ]
    return [
        f"### Larger at the peak, at {_text(at_text(report.findings, at.shape))}",
        _table(("tensor", f"{unit.name} before:", "after:"), rows),
    ]


def _coverage(report: MemoryReport) -> list[str]:
    outside = "exact" if report.peak.label != "unknown" else _HOW["unknown"]
    scopes: list[tuple[str, PeakFigures, str]] = [
        ("weights", report.weights, outside),
        ("inputs", report.inputs, outside),
    ]
    rows = [(name, _code(figures.formula), how) for name, figures, how in scopes]
    rows.append(("outputs and activations", "see the peak", _HOW[report.peak.label]))
    rows += [(name, "", "not modelled") for name in _NOT_MODELLED]
    parts = ["## What the numbers cover", _table(("memory", "bytes", "how well"), rows)]
    if report.peak.reasons:
        parts += ["### Not counted", _list(map(_text, report.peak.reasons))]
    return parts


def _findings(findings: ShapeFindings) -> list[str]:
    parts = []
    if findings.unknown_dims:
        rows = [
            (
                _code(f"{u.tensor}[{u.axis}]" if u.axis >= 0 else u.tensor),
                _code(u.symbol) if u.symbol else "",
                "no limit known" if u.bound is None else _code(u.bound),
                _text(f"{u.node or u.op}: {u.reason}"),
            )
            for u in findings.unknown_dims
        ]
        parts += ["## Unknown dims", _table(("dim", "stands as", "at most", "why"), rows)]
    if findings.assumptions:
        said = [
            (_code(a.text), a.kind, _text(": ".join(t for t in (a.node, a.reason) if t and t != a.text)))
            for a in findings.assumptions
        ]
        parts += ["## Assumptions", _table(("assumption", "kind", "from"), said)]
    if findings.limits:
        limits = [(_code(limit.text), _text(f"{limit.node}: {limit.reason}")) for limit in findings.limits]
        parts += ["## Limits", _table(("limit", "from"), limits)]
    return parts


# ------------------------------------------------------------------------------------------------ pieces


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; columns whose title ends with a colon are numbers."""
    lines = [
        f"| {' | '.join(title.removesuffix(':') for title in titles)} |",
        f"|{'|'.join(' ---: ' if title.endswith(':') else ' --- ' for title in titles)}|",
    ]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _text(text: str) -> str:
    """Text that shows as it is, also in a table."""
    return _SPECIAL.sub(r"\\\g<0>", " ".join(text.split()))


def _code(text: str) -> str:
    """A name or formula as code, also in a table; backticks are fenced by longer ones."""
    line = " ".join(text.split()).replace("|", "\\|")
    if "`" not in line:
        return f"`{line}`"
    return f"`` {line} ``"


def _share(part: int, whole: int) -> str:
    return f"{part / whole * 100:.1f} %" if whole else "-"
