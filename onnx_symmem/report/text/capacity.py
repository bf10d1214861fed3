"""The results of `fit` and `check` on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from onnx_symmem.memory.capacity import Capacity
from onnx_symmem.report.capacity import BudgetCheck, Fit
from onnx_symmem.report.text.layout import (
    Unit,
    facts,
    heading,
    indented,
    labelled,
    quiet,
    shape_text,
    sized_table,
)

__all__ = ["show_check", "show_fit"]


def show_fit(console: Console, fit: Fit) -> None:
    """One answer in words, or a table over the second dim."""
    console.print(Text(" and ".join(fit.models), style="bold"))
    facts(
        console,
        [("budget", f"{fit.budget:,} bytes"), *_counted(fit.counts, fit.reserve), *_limit(fit.limits)],
    )
    # Where bytes are an upper bound, the size is a lower one.
    title = f"Largest {fit.solve[0]} that {'is sure to fit' if 'bound' in fit.labels else 'fits'}"
    if len(fit.solve) == 1:
        fixed = fit.rows[0].fixed
        heading(console, title, f"at {shape_text(fixed)}" if fixed else "")
        _answers(console, fit, fit.rows[0].found)
        _nothing_fits(console, fit, fit.rows[0].found)
        return
    heading(console, title, f"for sizes of {fit.solve[1]}")
    unit = Unit.of(c.needed for row in fit.rows for c in row.found)
    several = len(fit.models) > 1
    columns = []
    for number in range(len(fit.models)):
        whose = f" [{number + 1}]" if several else ""
        columns += [(fit.solve[0] + whose, "number"), (f"needs, {unit.name}{whose}", "number")]
    table = sized_table((fit.solve[1], "number"), *columns)
    for row in fit.rows:
        cells = [str(row.fixed[fit.solve[1]])]
        for c in row.found:
            cells += [_size(c), unit.show(c.needed)]
        table.add_row(*cells)
    indented(console, table)
    if several:
        for number, model in enumerate(fit.models):
            indented(console, quiet(f"[{number + 1}] {model}"))


def _answers(console: Console, fit: Fit, found: Sequence[Capacity]) -> None:
    unit = Unit.of(n for c in found for n in (c.needed, c.next_needed))
    table = sized_table(
        ("model", "name"), (fit.solve[0], "number"), (f"needs, {unit.name}", "number"),
        ("next", "number"), (f"would need, {unit.name}", "number"),
    )  # fmt: skip
    for model, c in zip(fit.models, found, strict=True):
        after = "-" if c.next_size is None else str(c.next_size)
        needed = "-" if c.size is None else unit.show(c.needed)
        table.add_row(model, _size(c), needed, after, unit.show(c.next_needed))
    indented(console, table)


def _nothing_fits(console: Console, fit: Fit, found: Sequence[Capacity]) -> None:
    """In words: what even the smallest size needs."""
    for model, c in zip(fit.models, found, strict=True):
        if c.size is None:
            least = f"{c.symbol}={c.next_size}"
            over = c.needed - fit.budget
            text = f"no {c.symbol} fits: {least} needs {c.needed:,} bytes, {over:,} more than the budget"
            indented(console, f"{model}: {text}" if len(fit.models) > 1 else text)


def _size(c: Capacity) -> str:
    if c.unlimited:
        return "any"
    return "none" if c.size is None else str(c.size)


def show_check(console: Console, check: BudgetCheck) -> None:
    """Whether the budget is kept, and the bytes behind it."""
    console.print(Text(check.model, style="bold"))
    facts(
        console,
        [
            ("budget", f"{check.budget:,} bytes"),
            *_counted(check.counts, check.reserve),
            *_limit((check.limit,)),
        ],
    )
    if check.needed:
        unit = Unit.of([check.budget, *(n for _, n in check.needed)])
        heading(console, labelled("At shapes", check.label), unit.name)
        table = sized_table(("at", "name"), ("needs", "number"), ("budget", "number"), ("", "short"))
        for shape, needed in check.needed:
            verdict = "fits" if needed <= check.budget else f"{unit.show(needed - check.budget)} too many"
            table.add_row(shape_text(shape), unit.show(needed), unit.show(check.budget), verdict)
        indented(console, table)
        return
    heading(console, labelled("Every shape of the domain", check.label))
    if check.proved:
        indented(console, "proved: no shape needs more than the budget")
    elif check.witness is not None and check.witness_needed is not None:
        unit = Unit.of([check.witness_needed])
        shown = [] if unit.name == "bytes" else [unit.named(check.witness_needed)]
        needs = ", ".join([*shown, f"{check.witness_needed:,} bytes"])
        indented(console, f"{shape_text(check.witness)} needs {needs}")
    else:
        indented(console, "neither proved nor refuted; give shapes with --at, or ranges with --dim")


def _counted(counts: Sequence[str], reserve: int) -> list[tuple[str, str]]:
    names = ["activations and outputs" if scope == "activations" else scope for scope in counts]
    rows = [("counts", ", ".join(names))]
    if reserve:
        rows.append(("reserve", f"{reserve:,} bytes"))
    return rows


def _limit(limits: Sequence[int | None]) -> list[tuple[str, str]]:
    """The memory limit that chose levels, if any did; several where models have their own."""
    shown = [f"{limit:,} bytes" for limit in dict.fromkeys(limits) if limit is not None]
    return [("memory limit", f"{' and '.join(shown)}, which chooses the level")] if shown else []
