"""The node tests of the installed onnx: nothing wrong, no rule fails, nearly everything expressed."""

from __future__ import annotations

import pytest

from benchmarks.node_tests import MODES, SymbolicTest, symbolic_tests
from onnx_symmem.graph.load import load_model
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.table import ModelShapes

LEAST_SHARE = {"shared": 0.995, "unique": 0.995}  # of the tests without sizes that are in the data


def verdict(test: SymbolicTest, shapes: ModelShapes) -> str:
    """right, open (an output has an unknown dim or rank), or what is wrong."""
    sizes = shapes.domain.completed(test.sizes)
    result = "right"
    for name, real in test.outputs.items():
        dims = shapes.graph.of(name)
        if dims is None:
            result = "open"
            continue
        if len(dims) != len(real):
            return f"{test.name}: {name} has rank {len(real)}, not {len(dims)}"
        for dim, size in zip(dims, real, strict=True):
            if not dim.symbols() <= sizes.keys():
                result = "open"
            elif dim.evaluate(sizes) != size:
                return f"{test.name}: {name} is {real}, not {[str(d) for d in dims]} at {dict(test.sizes)}"
    return result


@pytest.mark.parametrize("mode", MODES)
def test_node_suite(mode: str) -> None:
    tests = symbolic_tests(mode)
    assert len(tests) > 1500
    wrong, failed, right, settled = [], [], 0, 0
    for test in tests:
        shapes = infer_shapes(load_model(test.model).view())
        failed += [
            f"{test.name}: {u.reason}" for u in shapes.unknowns if u.reason.startswith("the rule failed")
        ]
        kinds = dict(zip((v.name for v in shapes.graph.view.values), shapes.graph.elem_types, strict=True))
        wrong += [
            f"{test.name}: {n} has type {kinds[n]}" for n, kind in test.types.items() if kinds[n] != kind
        ]
        found = verdict(test, shapes)
        if found not in ("right", "open"):
            wrong.append(found)
        if not test.of_data:
            settled += 1
            right += found == "right"
    assert not wrong
    assert not failed
    assert right / settled >= LEAST_SHARE[mode], f"{right} of {settled}"


def test_sizes_in_the_data_are_bounded() -> None:
    """Where a size is in the data, the real one keeps to the bound."""
    for test in symbolic_tests("unique"):
        if not test.of_data:
            continue
        shapes = infer_shapes(load_model(test.model).view())
        bounds = {u.symbol: u.bound for u in shapes.unknowns if u.symbol}
        for name, real in test.outputs.items():
            for dim, size in zip(shapes.graph.of(name) or (), real, strict=False):
                bound = bounds.get(str(dim))
                if bound is not None and bound.symbols() <= test.sizes.keys():
                    assert size <= bound.evaluate(test.sizes), (test.name, name, str(bound))
