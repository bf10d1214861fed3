"""Small buffer graphs for the order tests, and their exact optimum by enumeration."""

from collections.abc import Iterator, Sequence

import numpy as np

from onnx_symmem.order.buffers import BufferGraph


def random_graph(seed: int, nodes: int) -> tuple[BufferGraph, list[int]]:
    """A connected-looking DAG with one to two buffers per node, and bytes per buffer."""
    rng = np.random.default_rng(seed)
    producer, readers = [], []
    for node in range(nodes):
        for _ in range(int(rng.integers(1, 3))):
            later = range(node + 1, nodes)
            readers.append(tuple(k for k in later if rng.random() < 1.5 / (1 + len(later))))
            producer.append(node)
    pinned = tuple(not r or bool(rng.random() < 0.05) for r in readers)
    before: list[set[int]] = [set() for _ in range(nodes)]
    for made_by, nodes_reading in zip(producer, readers, strict=True):
        for reader in nodes_reading:
            before[reader].add(made_by)
    predecessors = tuple(tuple(sorted(b)) for b in before)
    after: list[list[int]] = [[] for _ in range(nodes)]
    for node, deps in enumerate(predecessors):
        for dep in deps:
            after[dep].append(node)
    graph = BufferGraph(predecessors, tuple(map(tuple, after)), tuple(producer), tuple(readers), pinned, ())
    return graph, [int(b) for b in rng.integers(0, 50, len(producer))]


def buffers(reads: Sequence[Sequence[int]]) -> BufferGraph:
    """Node k makes buffer k and reads the buffers `reads[k]`; what nobody reads is an output."""
    readers: list[list[int]] = [[] for _ in reads]
    for node, read in enumerate(reads):
        for buffer in read:
            readers[buffer].append(node)
    before, after = tuple(tuple(sorted(r)) for r in reads), tuple(map(tuple, readers))
    return BufferGraph(before, after, tuple(range(len(reads))), after, tuple(not r for r in after), ())


def in_parts(parts: int, wide: set[int]) -> tuple[int, ...]:
    """An order of parts of ten chains of two, each joined; those in `wide` run their chains side by side."""
    found: list[int] = []
    for part in range(parts):
        first = 21 * part
        chains = [(first + 2 * k, first + 2 * k + 1) for k in range(10)]
        if part in wide:
            found += [a for a, _ in chains] + [b for _, b in chains]
        else:
            found += [node for chain in chains for node in chain]
        found.append(first + 20)
    return tuple(found)


def peak(graph: BufferGraph, sizes: Sequence[int], order: Sequence[int]) -> int:
    """Peak in bytes of an order: outputs are allocated while all inputs are alive."""
    left = [len(r) for r in graph.readers]
    live = most = 0
    for node in order:
        live += sum(sizes[b] for b in graph.makes[node])
        most = max(most, live)
        for buffer in graph.reads[node]:
            left[buffer] -= 1
            if not left[buffer] and not graph.pinned[buffer]:
                live -= sizes[buffer]
    return most


def all_orders(graph: BufferGraph) -> Iterator[tuple[int, ...]]:
    """Every topological order."""

    def extend(order: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(order) == graph.size:
            yield order
        for node in range(graph.size):
            if node not in order and all(p in order for p in graph.predecessors[node]):
                yield from extend((*order, node))

    yield from extend(())


def training(layers: int) -> BufferGraph:
    """A chain of layers forwards, then backwards; each layer's weight gradient is made, then transposed.

    Nodes: `layers` activations, the loss, then per layer from the last one: the gradient of its input, the
    raw gradient of its weight, and that transposed, an output.
    """
    reads: list[list[int]] = [[k - 1] if k else [] for k in range(layers)]
    reads.append([layers - 1])
    passed = layers
    for layer in reversed(range(layers)):
        own = layer - 1 if layer else layer
        first = len(reads)
        reads += [[passed, layer], [passed, own], [first + 1]]
        passed = first
    return buffers(reads)


def training_bytes(layers: int, activation: float, weights: Sequence[float]) -> list[float]:
    """Bytes of `training`'s buffers: activations and their gradients alike, weights layer by layer."""
    backwards = [[activation, weights[layer], weights[layer]] for layer in reversed(range(layers))]
    return [*[activation] * (layers + 1), *(b for row in backwards for b in row)]


def sorts(graph: BufferGraph, order: Sequence[int]) -> bool:
    """Whether it is a topological order of all nodes."""
    place = {node: k for k, node in enumerate(order)}
    return len(place) == len(order) == graph.size and all(
        place[p] < place[n] for n in range(graph.size) for p in graph.predecessors[n]
    )


def random_order(graph: BufferGraph, seed: int) -> tuple[int, ...]:
    """A topological order of all nodes, drawn."""
    rng = np.random.default_rng(seed)
    waiting = [len(p) for p in graph.predecessors]
    ready: list[int] = [k for k in range(graph.size) if not waiting[k]]
    order: list[int] = []
    while ready:
        node = ready.pop(int(rng.integers(len(ready))))
        order.append(node)
        for after in graph.successors[node]:
            waiting[after] -= 1
            if not waiting[after]:
                ready.append(after)
    return tuple(order)
