"""The part `edge_shapes` on a small model: empty and tiny sizes run, faults are seen."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from benchmarks import edge_shapes
from onnx_symmem.expr.expression import Expr
from tests.shapes.building import FLOAT, graph, model, node, value

CASES = {"cases": [{"n": 8, "w": 20}]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    nodes = [node("Relu", "x", "t"), node("Concat", "t t", "y", axis=1)]
    onnx.save(model(graph(nodes, [value("x", FLOAT, ["n", "w"])], "y")), tmp_path / "small.onnx")
    return tmp_path / "small.onnx"


def test_tiny_sizes_run_and_agree(path: Path) -> None:
    found = edge_shapes.compare_at_edges("small", path, CASES)
    assert found.ran == found.drawn > 10
    assert 0 < found.empty < found.ran
    assert found.tensors == 2 * found.ran
    assert not found.wrong + found.narrow + found.unexplained
    again = edge_shapes.compare_at_edges("small", path, CASES)
    assert again == found


def test_a_wrong_dim_and_a_wrong_limit_are_seen(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from onnx_symmem.shapes.rules.movement import NodeContext

    right = NodeContext.set

    def one_more(self: NodeContext, k: int, dims: object, *rest: object, **named: object) -> None:
        if self.node.op == "Concat":
            dims = (*dims[:1], Expr.symbol("w") + 1)  # type: ignore[index]
            self.limit(Expr.symbol("n") - 2, "none")
        right(self, k, dims, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(NodeContext, "set", one_more)
    found = edge_shapes.compare_at_edges("small", path, CASES)
    assert found.wrong
    assert found.narrow
