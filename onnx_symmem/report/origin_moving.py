"""Origins, op by op: operators that move, cut, join and reduce, arithmetic on shapes, and subgraphs."""

from __future__ import annotations

from onnx_symmem.expr.expression import Expr
from onnx_symmem.report.origin import Origin, Place, Site, origin_rule

__all__: list[str] = []


# ------------------------------------------------------------------------------------------------ moves


@origin_rule("Transpose")
def _transpose(site: Site) -> Origin | None:
    perm = site.attr("perm") or tuple(range(site.rank - 1, -1, -1))
    if not 0 <= site.axis < len(perm):
        return None
    return site.same(0, perm[site.axis], f"axis {perm[site.axis]} of {site.name(0)}, transposed")


@origin_rule("Reshape")
def _reshape(site: Site) -> Origin | None:
    if site.axis < 0:
        return Origin(f"what {site.number(0, site.item).text} is", (site.number(0, site.item),))
    dims, target = site.dims(0), site.items(1)
    if target is None or site.axis >= len(target):
        return None
    entry = target[site.axis]
    number = None if entry is None else entry.as_int()
    if number == 0 and not site.attr("allowzero", 0):
        return site.same(
            0, site.axis, f"a 0 in {site.name(1)} copies the size of {site.name(0)}[{site.axis}]"
        )
    if entry is not None and entry == site.expr:
        return Origin(f"what {site.name(1)} asks for", (site.number(1, site.axis),))
    if dims is None or site.expr is None:
        return None
    left = list(dims)
    made = site.place.level.shapes.dims[site.place.value] or ()
    rest = [dim for axis, dim in enumerate(made) if axis != site.axis]
    for dim in tuple(rest):
        if dim in left:
            left.remove(dim)
            rest.remove(dim)
    sources = [site.dim(0, k) for k, dim in enumerate(dims) if dim in left and dim.as_int() != 1]
    whole = f"the elements of {site.name(0)} [{', '.join(map(str, dims))}] over the other dims"
    return Origin(
        f"{whole} [{', '.join(str(d) for a, d in enumerate(made) if a != site.axis)}]", tuple(sources)
    )


@origin_rule("Flatten")
def _flatten(site: Site) -> Origin | None:
    dims = site.dims(0)
    if site.axis < 0 or dims is None:
        return None
    axis = int(site.attr("axis", 1))
    axis += len(dims) if axis < 0 else 0
    span = range(axis) if site.axis == 0 else range(axis, len(dims))
    places = tuple(site.dim(0, k) for k in span)
    return Origin(f"the product of {', '.join(p.text for p in places) or 'nothing'}", places)


def _axes(site: Site, rank: int) -> tuple[int, ...] | None:
    given = site.attr("axes")
    if given is None and site.has(1):
        given = site.ints(1)
        if given is None:
            return None
    return None if given is None else tuple(a + rank if a < 0 else a for a in given)


@origin_rule("Squeeze")
def _squeeze(site: Site) -> Origin | None:
    dims = site.dims(0)
    if site.axis < 0:
        return Origin(f"what {site.number(0, site.item).text} is", (site.number(0, site.item),))
    if dims is None:
        return None
    gone = _axes(site, len(dims))
    if gone is None:
        gone = tuple(k for k, dim in enumerate(dims) if dim.as_int() == 1)
    kept = [k for k in range(len(dims)) if k not in gone]
    return site.same(0, kept[site.axis]) if site.axis < len(kept) else None


@origin_rule("Unsqueeze")
def _unsqueeze(site: Site) -> Origin | None:
    if site.axis < 0:
        return Origin(f"what {site.number(0, site.item).text} is", (site.number(0, site.item),))
    new = _axes(site, site.rank)
    if new is None:
        return None
    if site.axis in new:
        return Origin("a new axis")
    return site.same(0, site.axis - sum(a < site.axis for a in new))


@origin_rule("Identity", "Cast")
def _identity(site: Site) -> Origin | None:
    if site.axis >= 0:
        return site.same(0, site.axis)
    return Origin(f"what {site.number(0, site.item).text} is", (site.number(0, site.item),))


@origin_rule("Concat")
def _concat(site: Site) -> Origin | None:
    if site.axis < 0:
        return _concat_item(site)
    axis = int(site.attr("axis", 0))
    if site.axis != (axis + site.rank if axis < 0 else axis):
        return None
    places = tuple(site.dim(k, site.axis) for k in site.inputs())
    if any(p.expr is None for p in places):
        return None
    return Origin(f"the sum of {', '.join(dict.fromkeys(p.text for p in places))}", places)


def _concat_item(site: Site) -> Origin | None:
    first = 0
    for k in site.inputs():
        dims = site.dims(k)
        length = dims[0].as_int() if dims is not None and len(dims) == 1 else None
        if length is None:
            return None
        if site.item < first + length:
            place = site.number(k, site.item - first)
            return Origin(f"what {place.text} is", (place,))
        first += length
    return None


@origin_rule("Split")
def _split(site: Site) -> Origin | None:
    axis = int(site.attr("axis", 0))
    if site.axis < 0 or site.axis != (axis + site.rank if axis < 0 else axis):
        return None
    place = site.dim(0, site.axis)
    if site.has(1):
        return Origin(
            f"part {site.output} of {place.text}, as {site.name(1)} says", (site.number(1, site.output),)
        )
    parts = site.attr("split")
    if parts:
        return Origin(f"part {site.output} of {place.text}: {parts[site.output]}")
    return Origin(f"part {site.output} of {place.text}, in {len(site.node.outputs)} equal parts", (place,))


@origin_rule("Slice")
def _slice(site: Site) -> Origin | None:
    dims = site.dims(0)
    if not site.has(1) or (site.axis >= 0 and dims is None):
        return None
    starts, ends = site.items(1), site.items(2)
    if starts is None or ends is None:
        return None
    rank = len(dims or (0,))
    axes = site.ints(3) if site.has(3) else tuple(range(len(starts)))
    steps = site.ints(4) if site.has(4) else (1,) * len(starts)
    if axes is None or steps is None:
        return None
    axes = tuple(a + rank if a < 0 else a for a in axes)
    if site.axis < 0:
        first, step = starts[0].as_int() if starts[0] is not None else None, steps[0]
        length = dims[0].as_int() if dims is not None and len(dims) == 1 else None
        if first is None or length is None or len(starts) != 1:
            return None
        first = min(max(first + length if first < 0 else first, 0), length)
        place = site.number(0, first + step * site.item)
        return Origin(f"what {place.text} is", (place,))
    if site.axis not in axes:
        return site.same(0, site.axis)
    at = axes.index(site.axis)
    bounds = [_shown(starts[at]), _shown(ends[at])] + ([str(steps[at])] if steps[at] != 1 else [])
    sources = [site.dim(0, site.axis)]
    if site.expr is not None and sources[0].expr == site.expr:
        return Origin(f"all of {sources[0].text}, cut to [{':'.join(bounds)}]", tuple(sources))
    sources += [
        site.number(k, at)
        for k, held in ((1, starts[at]), (2, ends[at]))
        if held is not None and not held.is_const and site.expr is not None
        and held.symbols() & site.expr.symbols()
    ]  # fmt: skip
    return Origin(f"{sources[0].text} cut to [{':'.join(bounds)}]", tuple(dict.fromkeys(sources)))


def _shown(entry: Expr | None) -> str:
    number = None if entry is None else entry.as_int()
    if number is not None and abs(number) >= 1 << 31:
        return ""
    return "?" if entry is None else str(entry)


@origin_rule("Pad")
def _pad(site: Site) -> Origin | None:
    dims = site.dims(0)
    pads = site.items(1) if site.has(1) else tuple(map(Expr.const, site.attr("pads", ())))
    if site.axis < 0 or dims is None or pads is None or site.has(3) or len(pads) != 2 * len(dims):
        return None
    place = site.dim(0, site.axis)
    ends = (site.axis, site.axis + len(dims))
    numbers = " + ".join("?" if pads[k] is None else str(pads[k]) for k in ends)
    extra = [site.number(1, k) for k in ends if (held := pads[k]) is not None and not held.is_const]
    return Origin(f"{place.text} + {numbers}, padded", (place, *extra))


@origin_rule("Tile")
def _tile(site: Site) -> Origin | None:
    repeats = site.items(1)
    if site.axis < 0 or repeats is None or site.axis >= len(repeats):
        return None
    place, count = site.dim(0, site.axis), site.number(1, site.axis)
    return Origin(f"{place.text} times {count.text}", (place, count))


@origin_rule("Gather")
def _gather(site: Site) -> Origin | None:
    dims, where = site.dims(0), site.dims(1)
    if site.axis < 0:
        picked = site.ints(1)
        if picked is None or dims is None or len(dims) != 1 or site.item >= len(picked):
            return None
        length = dims[0].as_int() or 0
        at = picked[site.item]
        place = site.number(0, at + length if at < 0 else at)
        return Origin(f"what {place.text} is", (place,))
    if dims is None or where is None:
        return None
    axis = int(site.attr("axis", 0))
    axis += len(dims) if axis < 0 else 0
    if site.axis < axis:
        return site.same(0, site.axis)
    if site.axis < axis + len(where):
        return site.same(1, site.axis - axis, f"the indices: the size of {site.name(1)}[{site.axis - axis}]")
    return site.same(0, site.axis - len(where) + 1)


# ------------------------------------------------------------------------------------------------ reductions


@origin_rule(
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceSumSquare", "ArgMax", "ArgMin",
)  # fmt: skip
def _reduce(site: Site) -> Origin | None:
    dims = site.dims(0)
    if site.axis < 0 or dims is None:
        return None
    if site.node.op.startswith("Arg"):
        axis = int(site.attr("axis", 0))
        axes: tuple[int, ...] | None = (axis + len(dims) if axis < 0 else axis,)
    else:
        axes = _axes(site, len(dims))
        if axes is None and not site.has(1):
            axes = () if site.attr("noop_with_empty_axes", 0) else tuple(range(len(dims)))
    if axes is None:
        return None
    if site.attr("keepdims", 1):
        return Origin("a reduced axis, kept as 1") if site.axis in axes else site.same(0, site.axis)
    kept = [k for k in range(len(dims)) if k not in axes]
    return site.same(0, kept[site.axis]) if site.axis < len(kept) else None


@origin_rule("TopK")
def _top_k(site: Site) -> Origin | None:
    axis = int(site.attr("axis", -1))
    if site.axis < 0 or site.axis != (axis + site.rank if axis < 0 else axis):
        return None
    if not site.has(1):
        return Origin("its attribute k")
    return Origin(f"the largest {site.number(1).text} of {site.dim(0, site.axis).text}", (site.number(1),))


# ------------------------------------------------------------------------------------------------ sizes


@origin_rule("Shape")
def _shape(site: Site) -> Origin | None:
    dims = site.dims(0)
    if site.axis >= 0 or dims is None:
        return None
    start = int(site.attr("start", 0))
    start = min(max(start + len(dims) if start < 0 else start, 0), len(dims))
    return site.same(0, start + site.item)


@origin_rule("Size")
def _size(site: Site) -> Origin | None:
    dims = site.dims(0)
    if site.axis >= 0 or dims is None:
        return None
    places = tuple(site.dim(0, k) for k in range(len(dims)))
    return Origin(f"the number of elements of {site.name(0)} [{', '.join(map(str, dims))}]", places)


@origin_rule("ConstantOfShape")
def _constant_of_shape(site: Site) -> Origin | None:
    if site.axis < 0:
        return Origin("its attribute value")
    return Origin(f"what {site.name(0)} asks for", (site.number(0, site.axis),))


@origin_rule("Range")
def _range(site: Site) -> Origin | None:
    if site.axis < 0:
        return None
    places = tuple(site.number(k) for k in range(3))
    held = [p.text if p.expr is None else str(p.expr) for p in places]
    return Origin(f"the numbers from {held[0]} up to {held[1]} in steps of {held[2]}", places)


@origin_rule("Resize", "Upsample")
def _resize(site: Site) -> Origin | None:
    sizes = 3 if site.node.op == "Resize" else -1
    if site.axis < 0 or site.attr("axes"):
        return None
    if sizes > 0 and site.has(sizes):
        return Origin(f"what {site.name(sizes)} asks for", (site.number(sizes, site.axis),))
    place = site.dim(0, site.axis)
    if place.expr == site.expr:
        return site.same(0, site.axis)
    if site.expr is not None and site.expr.symbols() != (place.expr or Expr.const(0)).symbols():
        return None
    return Origin(f"{place.text} times a scale, rounded down", (place,))


# ------------------------------------------------------------------------------------------------ subgraphs


@origin_rule("If")
def _if(site: Site) -> Origin | None:
    places = []
    for name in ("then_branch", "else_branch"):
        level = site.place.level.child(site.node, name)
        if level is None or site.output >= len(level.shapes.view.outputs):
            return None
        places.append(Place(level, level.shapes.view.outputs[site.output], site.place.axis, site.place.item))
    if any(p.expr is None for p in places):
        return None
    if places[0].expr != places[1].expr:
        return Origin(f"the branches give {places[0].text} or {places[1].text}", tuple(places))
    return Origin(f"both branches give it: {places[0].text}, {places[1].text}", tuple(places[:1]))


@origin_rule("Loop")
def _loop(site: Site) -> Origin | None:
    level = site.place.level.child(site.node, "body")
    carried = len(site.node.inputs) - 2
    if level is None or site.axis < 0:
        return None
    if site.output < carried:
        return site.same(site.output + 2, site.axis, f"carried from {site.name(site.output + 2)}")
    if site.axis == 0:
        return None
    value = level.shapes.view.outputs[site.output + 1]
    place = Place(level, value, site.axis - 1)
    return Origin(f"what every iteration gives: {place.text}", (place,)) if place.expr == site.expr else None
