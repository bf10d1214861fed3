"""Origins, op by op: operators that compute. Windows of convolutions, products, broadcasts.

A rule says how the node arrives at a place of its output; `origin` compares expressions where none does.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx_symmem.expr.expression import Expr
from onnx_symmem.report.origin import Origin, Place, Site, origin_rule

__all__: list[str] = []

_ARITHMETIC = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Mod": "%"}


# ------------------------------------------------------------------------------------------------ windows


def _window(site: Site, kernel: Sequence[Expr | int], spatial: int) -> tuple[str, int, int, int, Expr]:
    """(auto_pad, pads, stride, dilation, kernel) along one spatial axis."""
    rank = len(kernel)
    pads = tuple(site.attr("pads", ())) or (0,) * (2 * rank)
    strides, dilations = site.attr("strides", ()) or (1,) * rank, site.attr("dilations", ()) or (1,) * rank
    auto = site.attr("auto_pad", "NOTSET") or "NOTSET"
    pad = pads[spatial] + pads[spatial + rank] if auto == "NOTSET" else 0
    return auto, pad, int(strides[spatial]), int(dilations[spatial]), Expr.lift(kernel[spatial])


def _conv(site: Site, weights: int) -> Origin | None:
    dims, filters = site.dims(0), site.dims(weights)
    if site.axis < 0 or dims is None or filters is None or len(dims) != len(filters):
        return None
    if site.axis == 0:
        return site.same(0, 0, f"the batch of {site.name(0)}")
    if site.axis == 1:
        return site.same(weights, 0, f"the filters of {site.name(weights)}")
    return _windows(site, site.attr("kernel_shape") or filters[2:])


def _windows(site: Site, kernel: Sequence[Expr | int]) -> Origin | None:
    """How many windows fit along a spatial axis of input 0."""
    at = site.axis - 2
    if not 0 <= at < len(kernel):
        return None
    auto, pads, stride, dilation, size = _window(site, kernel, at)
    place = site.dim(0, site.axis)
    if auto.startswith("SAME"):
        return Origin(f"ceil({place.text} / {stride}): padded to the same size, stride {stride}", (place,))
    formula = "(size + pads - dilation*(kernel - 1) - 1)//stride + 1"
    if site.attr("ceil_mode", 0):
        formula = "ceil((size + pads - dilation*(kernel - 1) - 1)/stride) + 1, without windows in the padding"
    numbers = f"pads {pads}, dilation {dilation}, kernel {size}, stride {stride}"
    return Origin(f"windows along {place.text}: {formula} with {numbers}", (place,))


@origin_rule("Conv", "ConvInteger", "FusedConv")
def _convolution(site: Site) -> Origin | None:
    return _conv(site, 1)


@origin_rule("QLinearConv")
def _qlinear_conv(site: Site) -> Origin | None:
    return _conv(site, 3)


@origin_rule("ConvTranspose")
def _conv_transpose(site: Site) -> Origin | None:
    filters = site.dims(1)
    if site.axis < 0 or filters is None:
        return None
    if site.axis == 0:
        return site.same(0, 0, f"the batch of {site.name(0)}")
    if site.axis == 1:
        group = int(site.attr("group", 1))
        return Origin(f"the filters of {site.name(1)}, in {group} groups", (site.dim(1, 1),))
    if site.attr("output_shape"):
        return Origin("its attribute output_shape says so")
    kernel = site.attr("kernel_shape") or filters[2:]
    _, pads, stride, dilation, size = _window(site, kernel, site.axis - 2)
    extra = (site.attr("output_padding") or (0,) * len(kernel))[site.axis - 2]
    place = site.dim(0, site.axis)
    formula = "stride*(size - 1) + dilation*(kernel - 1) + 1 + output_padding - pads"
    numbers = f"stride {stride}, dilation {dilation}, kernel {size}, output_padding {extra}, pads {pads}"
    return Origin(f"{formula} of {place.text} with {numbers}", (place,))


@origin_rule("MaxPool", "AveragePool", "LpPool")
def _pool(site: Site) -> Origin | None:
    if 0 <= site.axis < 2:
        return site.same(0, site.axis)
    return _windows(site, site.attr("kernel_shape", ()))


# ------------------------------------------------------------------------------------------------ products


@origin_rule("MatMul", "MatMulInteger", "FusedMatMul", "QLinearMatMul")
def _matmul(site: Site) -> Origin | None:
    right = 3 if site.node.op == "QLinearMatMul" else 1
    a, b = site.dims(0), site.dims(right)
    if site.axis < 0 or not a or not b:
        return None
    if len(a) == 1 or len(b) == 1 or site.attr("transBatchA", 0) or site.attr("transBatchB", 0):
        return None
    if site.axis == site.rank - 2:
        return site.same(0, len(a) - (1 if site.attr("transA", 0) else 2), f"the rows of {site.name(0)}")
    if site.axis == site.rank - 1:
        column = len(b) - (2 if site.attr("transB", 0) else 1)
        return site.same(right, column, f"the columns of {site.name(right)}")
    return _broadcast(site, (0, right), "the batch dims of both factors, broadcast")


@origin_rule("Gemm", "FusedGemm")
def _gemm(site: Site) -> Origin | None:
    if site.axis == 0:
        return site.same(0, 1 if site.attr("transA", 0) else 0, f"the rows of {site.name(0)}")
    if site.axis == 1:
        return site.same(1, 0 if site.attr("transB", 0) else 1, f"the columns of {site.name(1)}")
    return None


# ------------------------------------------------------------------------------------------------ broadcast


def _broadcast(site: Site, inputs: Sequence[int], words: str = "") -> Origin | None:
    """The operand whose aligned dim is the result; all that are not 1 where none alone is."""
    aligned: list[Place] = []
    for k in inputs:
        dims = site.dims(k)
        if dims is None:
            return None
        axis = site.axis - site.rank + len(dims)
        if axis >= 0:
            aligned.append(site.dim(k, axis))
    equal = [p for p in aligned if p.expr == site.expr]
    chosen = equal[:1] or [p for p in aligned if p.expr is None or p.expr.as_int() != 1]
    if not chosen:
        return None
    if len(equal) > 1:
        others = ", ".join(p.text for p in equal[1:])
        said = f"the size of {chosen[0].text}, as of {others}"
    elif len(chosen) == 1:
        names = ", ".join(f"{p.text} = {p.expr}" for p in aligned if p != chosen[0])
        said = f"the size of {chosen[0].text}" + (f", broadcast with {names}" if names else ", broadcast")
    else:
        said = f"broadcast of {', '.join(p.text for p in chosen)}"
    return Origin(f"{words}: {said}" if words else said, tuple(chosen))


@origin_rule(
    "Add", "Sub", "Mul", "Div", "Mod", "Pow", "And", "Or", "Xor", "Equal", "Greater", "GreaterOrEqual",
    "Less", "LessOrEqual", "Max", "Min", "Sum", "Mean", "Where", "PRelu", "BitShift", "BitwiseAnd",
    "BitwiseOr", "BitwiseXor",
)  # fmt: skip
def _elementwise(site: Site) -> Origin | None:
    inputs = list(site.inputs())
    if site.axis >= 0:
        return _broadcast(site, inputs)
    places = []
    for k in inputs:
        dims = site.dims(k)
        if dims is None:
            return None
        places.append(site.number(k, 0 if all(d.as_int() == 1 for d in dims) else site.item))
    sign = _ARITHMETIC.get(site.node.op)
    if sign is not None:
        words = f" {sign} ".join(p.text for p in places)
    else:
        words = f"{site.node.op} of {', '.join(p.text for p in places)}"
    return Origin(words, tuple(places))


@origin_rule("Floor", "Ceil", "Reciprocal")
def _of_one(site: Site) -> Origin | None:
    if site.axis >= 0:
        return site.same(0, site.axis)
    place = site.number(0, site.item)
    words = {"Floor": "rounded down", "Ceil": "rounded up"}.get(site.node.op)
    return Origin(f"{place.text}, {words}" if words else f"1 / {place.text}", (place,))


@origin_rule("Expand")
def _expand(site: Site) -> Origin | None:
    dims, target = site.dims(0), site.items(1)
    if site.axis < 0 or dims is None or target is None:
        return None
    item, axis = site.axis - site.rank + len(target), site.axis - site.rank + len(dims)
    if item >= 0 and target[item] == site.expr and (axis < 0 or dims[axis] != site.expr):
        return Origin(f"what {site.name(1)} asks for", (site.number(1, item),))
    return site.same(0, axis)
