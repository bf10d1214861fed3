"""Legal inputs of a model at a shape, made up from what the model does with them, or as the user says.

The same seed gives the same numbers on every machine: each input draws from a generator of its own, seeded
with the seed and the CRC of its name. What an input is filled with is a short text, also for the user:

    normal               standard normal             ones, zeros, value:V    one number throughout
    uniform:LO:HI        floats in [LO, HI)          arange:LO:HI            LO, LO+1 .. HI-1, LO .. along the
    randint:LO:HI        integers in [LO, HI)                                last axis
    FILE.npy             an array of the right type and dims
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from onnx_symmem.errors import DomainError, RunFailed, UsageError
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.shape_text import shape_text
from onnx_symmem.run.ports import FLOAT_PORTS
from onnx_symmem.run.uses import InputUse, input_uses
from onnx_symmem.shapes.table import GraphShapes, ModelShapes

__all__ = [
    "Fill",
    "InputSpec",
    "check_names",
    "generate_inputs",
    "make_input",
    "plan_inputs",
    "resolve_shape",
]

Fill = str | np.ndarray

FORMS = "normal, uniform:LO:HI, randint:LO:HI, arange:LO:HI, value:V, ones, zeros, or FILE.npy"


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input to be made: its type and dims, what it is filled with, and why."""

    name: str
    elem_type: int
    dims: tuple[int, ...] | None
    fill: Fill
    reason: str

    @property
    def dtype(self) -> np.dtype:
        """The numpy type of its elements."""
        if self.elem_type == TensorProto.STRING:
            return np.dtype(object)
        return np.dtype(helper.tensor_dtype_to_np_dtype(self.elem_type))


def generate_inputs(
    shapes: ModelShapes, at: Mapping[str, int], overrides: Mapping[str, Fill] | None = None, seed: int = 0
) -> dict[str, np.ndarray]:
    """Arrays for all inputs of the model at the shape `at`; see `resolve_shape` for what may be left out.

    Raises RunFailed where they do not fit into memory.
    """
    specs = plan_inputs(shapes, at, overrides)
    try:
        return {spec.name: make_input(spec, seed) for spec in specs}
    except MemoryError:
        sizes = ", ".join(f"'{s.name}' {list(s.dims or ())}" for s in specs)
        raise RunFailed(f"the inputs do not fit into memory: {sizes}") from None


def resolve_shape(shapes: ModelShapes, at: Mapping[str, int]) -> dict[str, int]:
    """The size of every dim name of the inputs, in order of first appearance.

    Names that equations of the domain or of the model determine may be left out of `at`. Raises DomainError
    where a name is not known, missing, or where sizes contradict what the model needs in order to run.
    """
    names = shapes.input_symbols
    legal = ", ".join(names) or "none"
    for name, size in at.items():
        if not isinstance(size, int) or size < 0:
            raise DomainError(f"dim '{name}' = {size!r}: expected a size, 0 or more")
    known = dict(at)
    eliminated = shapes.domain.equalities
    for name in known:
        if name not in names and name not in eliminated:
            raise DomainError(f"dim '{name}' is not a dim of the inputs; they have {legal}")
    equations = [(Expr.symbol(name), expr) for name, expr in eliminated.items()]
    equations += [(a.left, a.right) for a in shapes.assumptions if a.kind == "equal"]
    for name in names:
        span = shapes.domain.range_of(name)
        if name not in known and span.lo == span.hi:
            known[name] = span.lo
    progress = True
    while progress:
        progress = False
        for left, right in equations:
            found = solve_for(left - right, known)
            if found is not None and found[0] in names:
                known[found[0]] = found[1]
                progress = True
    missing = [name for name in names if name not in known]
    if missing:
        given = shape_text(at, ", ") or "nothing"
        raise DomainError(
            f"no size for dim {', '.join(map(repr, missing))}; the inputs have {legal}, given was {given}"
        )
    _check_needs(shapes, known)
    shapes.domain.check({name: known[name] for name in names})
    return {name: known[name] for name in names}


def _check_needs(shapes: ModelShapes, known: Mapping[str, int]) -> None:
    """What operators need in order to run; the domain knows it too, but not whose need it is."""
    for limit in shapes.limits:
        broken = limit.expr.symbols() <= known.keys() and limit.expr.evaluate(known) < 0
        if limit.symbol in known and known[limit.symbol] % limit.divisor:
            broken = True
        if broken:
            sizes = ", ".join(f"{s} = {known[s]}" for s in sorted(limit.expr.symbols() & known.keys()))
            raise DomainError(f"{sizes}: {limit.node} needs {limit.text} ({limit.reason})")
    for assumption in shapes.assumptions:
        left, right = assumption.left, assumption.right
        if assumption.kind != "equal" or not left.symbols() | right.symbols() <= known.keys():
            continue
        sizes = f"{left} = {left.evaluate(known)}, {right} = {right.evaluate(known)}"
        if left.evaluate(known) != right.evaluate(known):
            raise DomainError(f"{sizes}: {assumption.node} needs {assumption.text} ({assumption.reason})")


def solve_for(difference: Expr, known: Mapping[str, int]) -> tuple[str, int] | None:
    """(name, size) where `difference == 0` is linear in one name that is not known, else None."""
    unknown = difference.symbols() - known.keys()
    if len(unknown) != 1:
        return None
    (name,) = unknown
    rest = difference.substitute({s: known[s] for s in difference.symbols() & known.keys()})
    slope = (rest - rest.constant_term()).exact_quotient(Expr.symbol(name))
    factor = slope.as_int() if slope is not None else None
    if not factor or rest.constant_term() % factor:
        return None
    return name, -rest.constant_term() // factor


def plan_inputs(
    shapes: ModelShapes, at: Mapping[str, int], overrides: Mapping[str, Fill] | None = None
) -> tuple[InputSpec, ...]:
    """What each input is filled with at a shape; inputs with a default of their own only where overridden."""
    full = resolve_shape(shapes, at)
    overrides = overrides or {}
    graph, view = shapes.graph, shapes.graph.view
    check_names(shapes, overrides)
    uses = input_uses(shapes)
    specs = []
    for i in view.inputs:
        value = view.values[i]
        given = overrides.get(value.name)
        if i in view.initializers and given is None:
            continue
        if value.type is not None and value.type.WhichOneof("value") not in ("tensor_type", None):
            kind = str(value.type.WhichOneof("value")).removesuffix("_type")
            raise UsageError(f"input '{value.name}' is a {kind}; only tensors can be made up")
        symbolic = graph.dims[i]
        dims = None if symbolic is None else tuple(d.evaluate(full) for d in symbolic)
        elem_type = graph.elem_types[i]
        if given is not None:
            spec = InputSpec(value.name, elem_type, dims, given, "as asked")
            _check_override(spec)
        elif dims is None:
            raise UsageError(f"input '{value.name}' declares no shape; give --input {value.name}=FILE.npy")
        else:
            fill, reason = _fill(graph, i, uses.get(value.name), full, dims)
            spec = InputSpec(value.name, elem_type, dims, fill, reason)
        specs.append(spec)
    return tuple(specs)


def check_names(shapes: ModelShapes, overrides: Mapping[str, Fill]) -> None:
    """Raise UsageError where an override is for an input that the model has not."""
    view = shapes.graph.view
    names = [view.values[i].name for i in view.inputs]
    for name in overrides:
        if name not in names:
            raise UsageError(f"input '{name}': the model has no such input; it has {', '.join(names)}")


def _fill(
    graph: GraphShapes, i: int, use: InputUse | None, full: Mapping[str, int], dims: tuple[int, ...]
) -> tuple[Fill, str]:
    """What suits one input, and why."""
    name, elem_type = graph.view.values[i].name, graph.elem_types[i]
    if elem_type == TensorProto.BOOL:
        return "ones", "a condition"
    if elem_type == TensorProto.STRING:
        return "ones", "a text"
    if use is None:
        for k in graph.view.consumers[i]:
            node = graph.view.nodes[k]
            for port, read in enumerate(node.inputs):
                if read == i and not node.domain and (node.op, port) in FLOAT_PORTS:
                    return FLOAT_PORTS[node.op, port], f"what {node.label()} takes"
        return "normal", "floating point"
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(elem_type))
    least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    positional = "position" in name.lower()
    lengths = [n for n in (_evaluate(e, full) for e in use.lengths) if n is not None]
    if lengths:
        return f"value:{max(min(lengths), 0)}", "a length"
    if use.indices:
        low, high = _index_range(use, full)
        high = min(high, most)
        at = f"an index at {use.indices[0].node}"
        return f"{'arange' if positional else 'randint'}:{low}:{high + 1}", at
    if use.size or use.axis:
        return ("ones", f"a size at {use.size}") if use.size else ("zeros", f"an axis at {use.axis}")
    if use.mask or "mask" in name.lower():
        return "ones", f"a mask at {use.mask}" if use.mask else "a mask by its name"
    if positional:
        return f"arange:0:{min(max(dims, default=1), most)}", "positions by its name"
    if dtype.itemsize == 1:
        return f"randint:{least}:{most + 1}", "8-bit numbers"
    return "randint:0:100", "numbers"


def _evaluate(expr: Expr | None, full: Mapping[str, int]) -> int | None:
    return expr.evaluate(full) if expr is not None and expr.symbols() <= full.keys() else None


def _index_range(use: InputUse, full: Mapping[str, int]) -> tuple[int, int]:
    """The numbers >= 0 that are legal for every use as an index; (0, 0) where that is not known."""
    low, high = 0, np.iinfo(np.int32).max
    for index in use.indices:
        size = _evaluate(index.dim, full)
        if size is None or size <= 0 or index.opaque:
            high = 0
            continue
        a = abs(index.scale)
        first, last = (
            (index.low, index.high) if index.scale > 0 else (size - 1 - index.high, size - 1 - index.low)
        )
        low = max(low, -(first // a))
        high = min(high, (size - 1 - last) // a)
    return (low, high) if low <= high else (low, low)


def make_input(spec: InputSpec, seed: int = 0) -> np.ndarray:
    """The array that a spec describes."""
    if isinstance(spec.fill, np.ndarray):
        return _fitted(spec, spec.fill, "the array")
    if spec.fill.endswith(".npy"):
        return _fitted(spec, _load(spec.name, spec.fill), spec.fill)
    if spec.dims is None:
        raise UsageError(f"input '{spec.name}' declares no shape; give --input {spec.name}=FILE.npy")
    form, numbers = _parse(spec)
    if spec.elem_type == TensorProto.STRING:
        return np.full(spec.dims, "text", dtype=object)
    rng = np.random.default_rng([seed, zlib.crc32(spec.name.encode())])
    array: np.ndarray
    if form == "normal":
        array = rng.standard_normal(spec.dims, dtype=np.float32)
    elif form == "uniform":
        array = rng.uniform(numbers[0], numbers[1], spec.dims)
    elif form == "randint":
        array = rng.integers(int(numbers[0]), int(numbers[1]), spec.dims)
    elif form == "arange":
        span = np.arange(int(numbers[0]), int(numbers[1]))
        array = np.broadcast_to(np.resize(span, spec.dims[-1:]), spec.dims)
    else:
        array = np.full(spec.dims, {"ones": 1, "zeros": 0}.get(form, numbers[0] if numbers else 0))
    return np.ascontiguousarray(array.astype(spec.dtype)).reshape(spec.dims)


_NUMBERS = {"normal": 0, "ones": 0, "zeros": 0, "value": 1, "uniform": 2, "randint": 2, "arange": 2}


def _parse(spec: InputSpec) -> tuple[str, list[float]]:
    """The form of a fill text and its numbers; UsageError where it is none or does not suit the type."""
    text = str(spec.fill)
    form, *rest = text.split(":")
    try:
        numbers = [int(r) if r.lstrip("+-").isdigit() else float(r) for r in rest]
    except ValueError:
        numbers = []
    if form not in _NUMBERS or len(rest) != _NUMBERS[form] or len(numbers) != len(rest):
        raise UsageError(f"input '{spec.name}': '{text}' is not understood; expected {FORMS}")
    if len(numbers) == 2 and numbers[0] >= numbers[1]:
        raise UsageError(f"input '{spec.name}': '{text}' holds no number; expected LO below HI")
    whole = spec.dtype.kind in "iu"
    if whole and (form == "normal" or any(isinstance(n, float) for n in numbers)):
        raise UsageError(
            f"input '{spec.name}' is {spec.dtype.name}: '{text}' does not suit it; expected randint:LO:HI, "
            "arange:LO:HI, value:V, ones or zeros"
        )
    if whole and numbers:
        ends = np.iinfo(spec.dtype)
        last = numbers[-1] - (1 if len(numbers) == 2 else 0)
        if numbers[0] < ends.min or last > ends.max:
            raise UsageError(f"input '{spec.name}' is {spec.dtype.name}: '{text}' does not fit into it")
    return form, numbers


def _check_override(spec: InputSpec) -> None:
    """Fail before anything runs; files are only looked at."""
    if isinstance(spec.fill, np.ndarray):
        _fitted(spec, spec.fill, "the array")
    elif spec.fill.endswith(".npy"):
        _fitted(spec, _load(spec.name, spec.fill), spec.fill)
    else:
        _parse(spec)


def _load(name: str, file: str) -> np.ndarray:
    try:
        return np.load(Path(file), mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise UsageError(f"input '{name}': {file}: no such file") from None
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"input '{name}': {file} is not a .npy array ({reason})") from None


def _fitted(spec: InputSpec, array: np.ndarray, source: str) -> np.ndarray:
    """The array, checked against type and dims; 2-byte and 1-byte floats may come as raw bits."""
    dtype = spec.dtype
    if array.dtype != dtype and dtype.kind == "V" and array.dtype.itemsize == dtype.itemsize:
        array = array.view(dtype)
    if dtype.kind == "O" and array.dtype.kind in "OUS":
        array = array.astype(object)
    if array.dtype != dtype:
        raise UsageError(f"input '{spec.name}': {source} holds {array.dtype.name}; expected {dtype.name}")
    if spec.dims is not None and array.shape != spec.dims:
        raise UsageError(
            f"input '{spec.name}': {source} has dims {list(array.shape)}; expected {list(spec.dims)}"
        )
    return np.asarray(array, order="C")  # a scalar stays one
