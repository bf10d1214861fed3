"""Why the peak of an order is what it is, on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from onnx_symmem.order.explanation import HeldTensor, OrderExplanation, PeakRegion, WayDown
from onnx_symmem.report.text.layout import Unit, heading, indented, list_lines, shape_text, sized_table

__all__ = ["show_explanation"]

_SHOWN = 8  # tensors per table


def show_explanation(console: Console, found: OrderExplanation) -> None:
    """Per region of the domain: what is held at the peak, what was spared, and what would lower it."""
    heading(console, "How the order came about", found.found_by)
    list_lines(console, "", [(step, "") for step in found.steps])
    for region in found.regions:
        _region(console, region)


def _region(console: Console, region: PeakRegion) -> None:
    unit = Unit.of([region.bytes, region.before])
    more = f" and {len(region.shapes) - 1} more" if len(region.shapes) > 1 else ""
    heading(
        console,
        f"Peak at {shape_text(region.shapes[-1])}{more}",
        f"{unit.show(region.bytes)} {unit.name} at {region.moment}",
    )
    _tensors(console, "held there", region.tensors)
    if region.before > region.bytes:
        console.print(f"  before: {unit.show(region.before)} {unit.name} at {region.before_at}")
        _tensors(console, "no longer held there", region.spared)
    if region.way_down is not None:
        _way_down(console, region.way_down, region.bytes)


def _way_down(console: Console, way: WayDown, peak: int) -> None:
    unit = Unit.of([way.bytes, way.floor, peak])
    least = f"{unit.show(way.bytes)} {unit.name}"
    if way.own:
        text = (
            f"every order holds {least} while {way.node} runs, all of it its own operands and results: only "
            "that node working in place, in parts, or fused with its neighbours lowers it"
        )
    else:
        text = f"every order holds {least} while {way.node} runs; to go lower, recompute one of these"
    if way.floor > way.bytes:
        text += f"; and no order gets below {unit.show(way.floor)} {unit.name}, found by search at this shape"
    if way.reached:
        text += "; the plan is at that limit"
    console.print(f"  {text}", soft_wrap=False)
    if not way.own:
        _tensors(console, "held in any order", way.tensors)


def _tensors(console: Console, title: str, tensors: Sequence[HeldTensor]) -> None:
    if not tensors:
        return
    unit = Unit.of([t.bytes for t in tensors])
    table = sized_table((title, "name"), (unit.name, "number"), ("made by", "name"), ("until", "name"))
    for tensor in tensors[:_SHOWN]:
        table.add_row(
            tensor.name, unit.show(tensor.bytes), tensor.made_by, tensor.until or "the end of the run"
        )
    rest = tensors[_SHOWN:]
    if rest:
        table.add_row(f"{len(rest)} more", unit.show(sum(t.bytes for t in rest)), "", "")
    indented(console, table)
