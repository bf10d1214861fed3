"""One graph under construction: nodes in the order written, named weights drawn from a seed.

Nodes are appended as `gs.Node`: `gs.Graph.layer` scans every tensor of the graph per call, which is too slow
for graphs of a thousand nodes. Weights depend on their name and the seed only, so a model's bytes do not
change when a layer is built earlier or later.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx_graphsurgeon as gs

__all__ = ["Builder", "Tensor"]

Tensor: TypeAlias = gs.Variable | gs.Constant

OPSET = 18
IR_VERSION = 10


class Builder:
    """Appends nodes to a `gs.Graph`. `op` is the only way nodes are made, so file order is call order."""

    def __init__(self, name: str, seed: int = 0, opset: int = OPSET) -> None:
        self.graph = gs.Graph(
            name=name,
            opset=opset,
            ir_version=IR_VERSION,
            producer_name="onnx-symmem models",
            import_domains=[onnx.helper.make_opsetid("", opset)],
        )
        self.seed = seed
        self._prefix: list[str] = []
        self._counts: dict[str, int] = {}
        self._weights: dict[str, gs.Constant] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], gs.Constant] = {}

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Names made inside begin with `name`, as the modules of an exporter do."""
        self._prefix.append(name)
        try:
            yield
        finally:
            self._prefix.pop()

    def _named(self, name: str) -> str:
        full = "/".join([*self._prefix, name])
        count = self._counts.get(full, 0)
        self._counts[full] = count + 1
        return f"{full}_{count}" if count else full

    # ------------------------------------------------------------------ tensors

    def input(self, name: str, shape: Sequence[int | str], dtype: Any = np.float32) -> gs.Variable:
        """A graph input; dims given as text are symbols."""
        variable = gs.Variable(name, dtype=np.dtype(dtype), shape=list(shape))
        self.graph.inputs.append(variable)
        return variable

    def output(
        self, value: gs.Variable, name: str, shape: Sequence[int | str], dtype: Any = np.float32
    ) -> None:
        """Make `value` a graph output called `name`."""
        value.name = name
        value.dtype = np.dtype(dtype)
        value.shape = list(shape)
        self.graph.outputs.append(value)

    def weight(
        self, name: str, shape: Sequence[int], deviation: float | None = None, mean: float = 0.0
    ) -> gs.Constant:
        """A float weight, drawn from its name and the seed.

        Without `deviation`: 1 / sqrt(fan-in), the fan-in being all dims but the last of a matrix
        (in, out), and all but the first of a convolution kernel (out, in / groups, kh, kw).
        """
        full = "/".join([*self._prefix, name])
        if full in self._weights:
            raise ValueError(f"weight {full}: made twice; keep the tensor and use it again")
        if deviation is None:
            fan_in = math.prod(shape[1:]) if len(shape) == 4 else math.prod(shape[:-1])
            deviation = 1 / math.sqrt(fan_in or 1)
        rng = np.random.default_rng([self.seed, zlib.crc32(full.encode())])
        values = mean + rng.standard_normal(tuple(shape), dtype=np.float32) * np.float32(deviation)
        constant = gs.Constant(full, np.ascontiguousarray(values, dtype=np.float32))
        self._weights[full] = constant
        return constant

    def const(self, values: Any, dtype: Any = np.float32) -> gs.Constant:
        """A constant; equal constants are one initializer."""
        array = np.ascontiguousarray(np.asarray(values, dtype=dtype)).reshape(np.shape(values))
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = gs.Constant(f"const_{len(self._constants)}", array)
        return self._constants[key]

    def ints(self, *values: int) -> gs.Constant:
        """A 1-D int64 constant, as shape arithmetic needs it."""
        return self.const(list(values), np.int64)

    # ------------------------------------------------------------------ nodes

    def ops(self, op: str, *inputs: Tensor | None, outputs: int = 1, **attributes: Any) -> list[gs.Variable]:
        """Append a node with several outputs; None stands for an omitted optional input."""
        name = self._named(op)
        made = [gs.Variable(f"{name}_output_{k}") for k in range(outputs)]
        given = [gs.Variable.empty() if tensor is None else tensor for tensor in inputs]
        self.graph.nodes.append(gs.Node(op, name=name, attrs=attributes, inputs=given, outputs=made))
        return made

    def op(self, op: str, *inputs: Tensor | None, **attributes: Any) -> gs.Variable:
        """Append a node with one output."""
        return self.ops(op, *inputs, **attributes)[0]

    # ------------------------------------------------------------------ shape arithmetic

    def dim(self, value: Tensor, axis: int) -> gs.Variable:
        """The size of an axis as a 1-D tensor, in one Shape node with start and end."""
        return self.op("Shape", value, start=axis, end=axis + 1)

    def shape(self, *parts: gs.Variable | int) -> Tensor:
        """A target shape: a constant where all parts are known, else their Concat."""
        known = [part for part in parts if isinstance(part, int)]
        if len(known) == len(parts):
            return self.ints(*known)
        return self.op(
            "Concat", *[self.ints(part) if isinstance(part, int) else part for part in parts], axis=0
        )

    def reshape(self, value: Tensor, *parts: gs.Variable | int) -> gs.Variable:
        """Reshape to computed and known dims."""
        return self.op("Reshape", value, self.shape(*parts))

    def export(self) -> onnx.ModelProto:
        """The model as a proto."""
        return gs.export_onnx(self.graph)
