"""The result of `optimize` on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from onnx_symmem.report.results import LevelsFigures, Optimization, PeakFigures
from onnx_symmem.report.text.findings import at_text, data_note, show_findings, symbols_text
from onnx_symmem.report.text.layout import (
    GOOD,
    HEADING,
    Unit,
    facts,
    formulas,
    heading,
    indented,
    labelled,
    list_lines,
    percent,
    shape_text,
    sized_table,
)
from onnx_symmem.report.text.order import show_explanation

__all__ = ["show_optimization"]

_PROOFS = {
    "proved": "proved: at no shape of the domain is the peak larger than before",
    "kept": "the order that would have run is kept; nothing better was proved",
    "unproved": "not proved: at some shape the peak may be larger than before",
    "dispatched": "proved: the one of several orders runs that takes least, at no shape more than before",
}


def show_optimization(console: Console, figures: Optimization, verbose: bool = False) -> None:
    """Peaks before and after at sample shapes, the order that was chosen, and how it was checked."""
    out = f" -> {figures.out}" if figures.out else ""
    console.print(Text.assemble((figures.model, HEADING), out))
    facts(
        console,
        [
            ("symbols", symbols_text(figures.findings)),
            ("planned for", f"{figures.provider}, ONNX Runtime's optimisations: {figures.ort_level}"),
            ("nodes", f"{figures.nodes_original} -> {figures.nodes_planned}"),
        ],
    )
    _peaks(console, figures)
    _formula(console, "Peak before", figures.before)
    if figures.versions:
        _versions(console, figures)
    elif figures.after.formula != figures.before.formula:
        _formula(console, "Peak after", figures.after)
    if figures.levels is not None:
        _levels(console, figures, figures.levels)
    heading(console, "Plan")
    moved = f"{figures.moved_nodes} of {figures.nodes_planned} nodes moved"
    order = f"{figures.order_before} -> {figures.order_after} ({moved})"
    rows = [
        ("order", order if figures.moved_nodes else f"{figures.order_before}, as it is"),
        (
            "in place",
            f"{figures.in_place_before} -> {figures.in_place_after} outputs reuse an input's memory",
        ),
        *_delivery(figures),
        ("never worse", labelled(_never_worse(figures), figures.after.label)),
        ("least possible", _optimality(figures)),
        ("outputs", _verified(figures)),
        ("comparisons", _comparisons(figures)),
        ("time", f"{sum(figures.seconds.values()):.1f} s{_slowest(figures)}"),
    ]
    rows += [("written", file) for file in figures.files]
    facts(console, rows)
    if figures.explanation is not None:
        show_explanation(console, figures.explanation)
    if verbose:
        _candidates(console, figures)
    show_findings(console, figures.findings)


def _delivery(figures: Optimization) -> list[tuple[str, str]]:
    """What keeps the plan, where it is not the session."""
    made = figures.delivery
    if made.kind == "order":
        return []
    apart = ", buffers kept apart by texts of dims" if made.separated else ""
    return [("kept by", f"the file alone: {made.anchors} anchors{apart}")]


def _peaks(console: Console, figures: Optimization) -> None:
    note = "activations and outputs; inputs and weights come on top"
    heading(console, labelled("Peak memory", figures.after.label), note)
    sizes = [size for _, size in (*figures.before.at, *figures.after.at)]
    unit = Unit.of(sizes)
    titles = (f"before {unit.name}" if any(sizes) else "before", "after", "change", "least possible")
    table = sized_table(("at", "name"), *((title, "number") for title in titles))
    for (shape, before), (_, after), (_, least) in zip(
        figures.before.at, figures.after.at, figures.lower_bound.at, strict=True
    ):
        change = Text("-")
        if before is not None and after is not None:
            change = Text(percent(after, before), style=GOOD if after < before else "")
        table.add_row(
            at_text(figures.findings, shape), unit.show(before), unit.show(after), change, unit.show(least)
        )
    indented(console, table)
    data_note(console, figures.findings, [shape for shape, size in figures.after.at if size is not None])
    list_lines(console, "Not counted", [(reason, "") for reason in figures.after.reasons])


def _never_worse(figures: Optimization) -> str:
    """What holds at every shape, but for some bytes, and what deciding can add to it."""
    added, weights = figures.overhead_bytes, figures.added_weights
    proof = _PROOFS[figures.never_worse]
    if not figures.versions and figures.levels is None:
        return f"{proof}, but for {added:,} bytes at most" if added else proof
    takes = [f"{added:,} bytes at most"] if added else []
    takes += [f"{weights:,} bytes of constants to the weights"] if weights else []
    return f"{proof}; deciding adds {', and '.join(takes)}" if takes else proof


def _levels(console: Console, figures: Optimization, found: LevelsFigures) -> None:
    """What each level needs at the samples, with a mark where it is the one that runs, and what it adds."""
    limit = "given at run time" if found.limit is None else f"{found.limit:,} bytes"
    covers = ", ".join(found.counts) + (f" and {found.reserve:,} bytes in reserve" if found.reserve else "")
    heading(console, f"Levels: {len(found.levels)}", f"limit {limit}: {covers}, outputs included")
    unit = Unit.of(size for level in found.levels for size in level.needed)
    titles = [(f"{k} {unit.name}" if not k else str(k), "number") for k in range(len(found.levels))]
    table = sized_table(("at", "name"), *titles)
    for row, shape in enumerate(figures.samples):
        cells = [
            Text(unit.show(level.needed[row]), style=GOOD if row in level.runs_at else "")
            for level in found.levels
        ]
        table.add_row(f"{at_text(figures.findings, shape)}{_runs(found, row)}", *cells)
    indented(console, table)
    for number, level in enumerate(found.levels[1:], start=1):
        what = f"{len(level.recomputed)} recomputed"
        if level.offloaded:
            what += f", {len(level.offloaded)} offloaded"
        proved = "" if level.never_above else "; not proved to be below the level before at every shape"
        shares = [share for share in level.slower if share is not None]
        ends = dict.fromkeys(f"{end(shares):+.1%}" for end in (min, max) if shares)
        more = f", {' to '.join(ends)} at these shapes" if shares else ""
        heading(console, f"Level {number}: {what}", f"added operations{more}; bytes moved{proved}")
        formulas(console, [(level.operations, ""), (level.moved, "")])


def _runs(found: LevelsFigures, row: int) -> str:
    """Which level runs at a sample under the limit."""
    runs = next((k for k, level in enumerate(found.levels) if row in level.runs_at), None)
    if found.limit is None or runs is None:
        return ""
    needed = found.levels[runs].needed[row]
    return f" runs {runs}" if needed is not None and needed <= found.limit else f" none fits, {runs} runs"


def _versions(console: Console, figures: Optimization) -> None:
    """What a run of each order takes, with a mark where it is the one that runs."""
    note = "with what deciding takes"
    heading(console, f"Versions: {len(figures.versions)} orders, chosen by the shapes of the inputs", note)
    unit = Unit.of(size for v in figures.versions for _, size in v.peak.at)
    titles = [(f"{k} {unit.name}" if not k else str(k), "number") for k in range(len(figures.versions))]
    table = sized_table(("at", "name"), *titles)
    for row, shape in enumerate(figures.samples):
        sizes = [v.peak.at[row][1] for v in figures.versions]
        cells = [
            Text(unit.show(size), style=GOOD if row in v.runs_at else "")
            for v, size in zip(figures.versions, sizes, strict=True)
        ]
        runs = next((k for k, v in enumerate(figures.versions) if row in v.runs_at), 0)
        table.add_row(f"{at_text(figures.findings, shape)} runs {runs}", *cells)
    indented(console, table)
    for number, version in enumerate(figures.versions):
        _formula(console, f"Peak of {number}, {version.name}", version.peak)


def _formula(console: Console, title: str, peak: PeakFigures) -> None:
    count = len(peak.members)
    heading(console, title, f"bytes; the largest of {count}" if count > 1 else "bytes")
    formulas(console, [(member, "") for member in peak.members], most=4)


def _optimality(figures: Optimization) -> str:
    if figures.optimal:
        return "yes: proved that no order has a smaller peak, at any shape"
    if figures.after.label == "unknown":
        return "not known, as not all can be counted"
    ratios = [
        after / least
        for (_, after), (_, least) in zip(figures.after.at, figures.lower_bound.at, strict=True)
        if least and after is not None
    ]
    if not ratios:
        return "not known at any of the shapes above"
    text = f"within {(max(ratios) - 1) * 100:.1f} % of the lower bound at the shapes above"
    known = [
        after / least
        for (_, after), least in zip(figures.after.at, figures.floor, strict=False)
        if least and after is not None
    ]
    if known and max(known) < max(ratios):
        met = sum(ratio <= 1 for ratio in known)
        within = f"within {(max(known) - 1) * 100:.1f} %"
        text += f"; searched at these shapes: {within}, optimal at {met} of {len(known)}"
    return text


def _verified(figures: Optimization) -> str:
    if not figures.verified:
        return "not verified"
    # Several levels may have run at one shape.
    usual, unpacked = (
        "; ".join(dict.fromkeys(shape_text(v.shape) for v in figures.verified if v.packed is packed))
        for packed in (True, False)
    )
    count = figures.verified[0].outputs
    how = [usual] if usual else []
    if unpacked:
        how.append(f"only where neither side packs weights (else last bits differ) at {unpacked}")
    return f"bit-equal to the original's at {'; '.join(how)} ({count} output{'s' if count != 1 else ''})"


def _comparisons(figures: Optimization) -> str:
    counts = {kind: sum(tiers.values()) for kind, tiers in figures.comparisons.items()}
    return ", ".join(f"{n} {kind}" for kind, n in counts.items() if n) or "none needed"


def _slowest(figures: Optimization) -> str:
    parts = sorted(figures.seconds.items(), key=lambda item: -item[1])[:3]
    shown = ", ".join(f"{name} {seconds:.1f}" for name, seconds in parts if seconds >= 0.05)
    return f" ({shown})" if shown else ""


def _candidates(console: Console, figures: Optimization) -> None:
    heading(console, f"Orders tried ({len(figures.candidates)})")
    largest = [max((p for p in c.peaks if p is not None), default=None) for c in figures.candidates]
    unit = Unit.of(largest)
    table = sized_table(("order", "name"), ("outcome", "short"), (f"largest peak {unit.name}", "number"))
    for c, size in zip(figures.candidates, largest, strict=True):
        table.add_row(c.name, c.outcome, unit.show(size))
    indented(console, table)
