"""Lower bound of every order's peak, for all shapes at once.

Two bounds are polynomials that hold at every shape, and their maximum is the result. Buffers that no order
can have dead: while node v runs, a buffer is live in every topological order if its producer must come
before v (or is v) and one of its readers must come after v (or is v), or it is pinned. And minimum cuts
(`order.cut_bound`), which are stronger at the nodes that they are computed for (facts/ALGORITHMS, 8.7).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from onnx_symmem.expr.atom import Monomial
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.expression import ZERO, Expr
from onnx_symmem.memory.plan import PlanInput
from onnx_symmem.memory.sizes import ValueSizes
from onnx_symmem.order.buffers import BIT_SET_NODES, BufferGraph, buffer_graph
from onnx_symmem.order.cut_bound import CutLimits, cut_bound
from onnx_symmem.order.steering import steering_shapes

__all__ = ["lower_bound", "necessary_bytes"]

_CHUNK = 512  # buffers per matrix product; bounds memory at 512 * nodes bytes
_EXACT = 1 << 53  # below this, sums of integers are exact in float64


def necessary_bytes(graph: BufferGraph, sizes: Sequence[Expr]) -> tuple[Expr, ...]:
    """Per node, and last for the end of the run: bytes live in every order, net of order-dependent sharing.

    `sizes` are bytes per buffer, each non-negative on the domain. The peak of any order is at least the
    maximum of the results at every shape.
    """
    monomials = sorted({m for size in sizes for m, _ in size.terms}, key=lambda m: str(Expr({m: 1})))
    column = {m: k for k, m in enumerate(monomials)}
    coefficients = np.zeros((len(sizes), len(monomials)), dtype=object)
    for row, size in enumerate(sizes):
        for mono, c in size.terms:
            coefficients[row, column[mono]] = c
    total = np.abs(coefficients).sum(axis=0) if len(sizes) else np.zeros(len(monomials), dtype=object)
    exact = all(int(t) < _EXACT for t in total)
    table = coefficients.astype(np.float64) if exact else coefficients
    counted = [b for b, size in enumerate(sizes) if size.terms]
    width = (graph.size + 7) // 8
    sums = np.zeros((graph.size, len(monomials)), dtype=table.dtype)
    for start in range(0, len(counted), _CHUNK):
        part = counted[start : start + _CHUNK]
        packed = b"".join(_live_set(graph, b).to_bytes(width, "little") for b in part)
        bits = np.frombuffer(packed, dtype=np.uint8).reshape(len(part), width)
        mask = np.unpackbits(bits, axis=1, count=graph.size, bitorder="little")
        sums += mask.T.astype(table.dtype) @ table[part]
    rows = [_expression(row, monomials) for row in sums]
    for node, made, _ in graph.optional_share:
        # In some orders the result takes its operand's place, which is counted already.
        rows[node] = rows[node] - sizes[made]
    end = sum((size for b, size in enumerate(sizes) if graph.pinned[b]), ZERO)
    return (*rows, end)


def lower_bound(
    prepared: PlanInput,
    sizes: ValueSizes,
    domain: Domain | None = None,
    orders: Sequence[Sequence[int]] = (),
    shapes: Sequence[Mapping[str, int]] = (),
    limits: CutLimits | None = None,
    tick: Callable[[int, int], None] | None = None,
) -> tuple[Expr, ...]:
    """Expressions in bytes whose maximum no order of the graph can be below, at any shape.

    Minimum cuts need the domain that the sizes are taken on; known `orders` and steering `shapes` tell where
    they are worth most. Values whose size is unknown, and what runs inside subgraphs, count as nothing.
    """
    graph = buffer_graph(prepared)
    known = [sizes.bytes[v] or ZERO for v in graph.values]
    if graph.size > BIT_SET_NODES:
        # Without ancestor sets only what must be there at the end, and each node's own results, is known.
        own = (sum((known[b] for b in made), ZERO) for made in graph.makes)
        found = tuple(dict.fromkeys((*own, sum((s for b, s in enumerate(known) if graph.pinned[b]), ZERO))))
    else:
        found = tuple(dict.fromkeys(necessary_bytes(graph, known)))
    if domain is None:
        return found
    names = sorted({name for size in known for name in size.symbols()} - domain.equalities.keys())
    at = tuple(shapes) or steering_shapes(domain, names)
    cuts = cut_bound(graph, known, domain, at, tuple(orders) or (graph.topological,), found, limits, tick)
    return tuple(dict.fromkeys((*found, *cuts)))


def _live_set(graph: BufferGraph, buffer: int) -> int:
    """Bit set of the nodes during which the buffer is live in every order."""
    after_producer = graph.descendants[graph.producer[buffer]]
    if graph.pinned[buffer]:
        return after_producer
    before_reader = 0
    for reader in graph.readers[buffer]:
        before_reader |= graph.ancestors[reader]
    return (after_producer & before_reader) | (1 << graph.producer[buffer])


def _expression(row: np.ndarray, monomials: Sequence[Monomial]) -> Expr:
    return Expr({m: int(c) for m, c in zip(monomials, row, strict=True) if c})
