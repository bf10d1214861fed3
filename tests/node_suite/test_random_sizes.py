"""The node tests at a few random sizes, 0 and 1 among them, against what ONNX Runtime makes."""

from __future__ import annotations

from benchmarks.node_shapes import sweep

# Ops whose dims are more than those of an input; expanded forms are left to the benchmark.
OPS = (
    "arg|concat|conv|einsum|expand|gather|gemm|loop|matmul|nllloss|pad|pool|prelu|range|reduce|reshape|scan"
    "|scatter|slice|split|squeeze|tile|topk|transpose|where"
)


def test_node_suite_at_random_sizes() -> None:
    found = sweep("unique", rf"^test_(?!.*expanded)\w*({OPS})", 3, 7)
    assert not found.wrong
    assert not found.narrow
    assert found.agreed == found.ran
    assert found.ran > 300
