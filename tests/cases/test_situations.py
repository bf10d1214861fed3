"""What deployers rely on, in each of ten situations: exact dims, equal outputs, kept contracts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.shape_speed import split_and_merged
from onnx_symmem import api
from onnx_symmem.errors import DomainError
from onnx_symmem.expr.text import parse
from onnx_symmem.graph.load import load_model
from onnx_symmem.memory.plan import plan
from onnx_symmem.memory.profile import profile
from onnx_symmem.memory.sizes import from_written, value_sizes
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.names import dim_text
from tests.cases.situations import SITUATIONS, Situation
from tests.shapes.building import assert_right, feeds, texts

SECONDS = 5.0


@pytest.fixture(params=SITUATIONS)
def situation(request: pytest.FixtureRequest) -> Situation:
    return SITUATIONS[request.param]()


def made(name: str) -> Situation:
    return SITUATIONS[name]()


def outputs(proto: onnx.ModelProto | Path, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    return list(api.create_session(str(proto) if isinstance(proto, Path) else proto).run(None, arrays))


def peak(proto: onnx.ModelProto, at: Mapping[str, int]) -> int:
    return int(api.memory_profile(proto).in_use.evaluate([at]).max())


# -- all of them ---------------------------------------------------------------------------------------
def test_dims(situation: Situation) -> None:
    """Exactly as expected, without unknowns, and as ONNX Runtime makes them at every shape."""
    for at in situation.sizes:
        shapes = assert_right(situation.proto, at, given=situation.given(at))
    assert not shapes.unknowns
    assert {name: texts(shapes, name) for name in situation.dims} == dict(situation.dims)


def test_dims_read_back_as_the_same_values(situation: Situation) -> None:
    shapes = infer_shapes(load_model(situation.proto).view())
    for dims in shapes.graph.dims:
        for dim in dims or ():
            text = dim_text(dim)
            assert isinstance(text, int) or parse(text) == dim


def test_plans_change_no_output(situation: Situation) -> None:
    if len(situation.proto.graph.node) > 1000:
        situation = replace(situation, proto=split_and_merged(3))
    planned = api.optimize(situation.proto, verify=False).proto
    for at in situation.sizes:
        arrays = feeds(situation.proto, at, situation.given(at))
        for before, after in zip(outputs(situation.proto, arrays), outputs(planned, arrays), strict=True):
            assert np.allclose(before, after, rtol=1e-4, atol=1e-5)


# -- one by one ----------------------------------------------------------------------------------------
def test_the_smallest_waveform_is_named() -> None:
    shapes = infer_shapes(load_model(made("strided_front").proto).view())
    assert [limit.text for limit in shapes.limits] == ["L >= 60"]
    with pytest.raises(DomainError, match=r"L"):
        shapes.domain.check({"B": 1, "L": 59})


def test_scores_are_most_of_the_peak_of_long_waveforms() -> None:
    situation = made("strided_front")
    steps = (40_000 + 20) // 40 - 1
    at = {"B": 2, "L": 40_000}
    scores = 4 * 2 * steps * steps
    assert scores <= peak(situation.proto, at) <= 4 * scores


def test_windows_need_no_guess() -> None:
    shapes = infer_shapes(load_model(made("padded_windows").proto).view())
    assert not shapes.assumptions
    assert not shapes.limits


def test_names_and_metadata_are_a_contract(tmp_path: Path) -> None:
    proto = made("free_masks").proto
    out = tmp_path / "planned.onnx"
    api.optimize(proto, out)
    planned = onnx.load(out)
    for before, after in (
        (proto.graph.input, planned.graph.input),
        (proto.graph.output, planned.graph.output),
    ):
        assert [v.SerializeToString() for v in before] == [v.SerializeToString() for v in after]
    assert planned.graph.doc_string == "of the graph"
    assert (planned.doc_string, planned.model_version) == ("of the model", 7)
    kept = {p.key: p.value for p in planned.metadata_props}
    assert kept.items() >= {"labels": "a,b,c", "threshold": "0.5"}.items()


def test_a_length_beyond_the_table_is_refused_by_name() -> None:
    proto = made("position_table").proto
    shapes = infer_shapes(load_model(proto).view())
    assert [limit.text for limit in shapes.limits] == ["T <= 512"]
    with pytest.raises(DomainError) as caught:
        api.optimize(proto, domain={"T": (1, 512)}, verify_at={"B": 1, "T": 600})
    assert "T" in str(caught.value)
    assert "512" in str(caught.value)
    planned = api.optimize(proto).proto
    assert [d.dim_param for d in planned.graph.input[0].type.tensor_type.shape.dim] == ["B", "T"]


@pytest.mark.parametrize("name", ["heads_split_and_merged", "many_paths"])
def test_analysis_ends_soon(name: str) -> None:
    proto = made(name).proto
    start = time.process_time()
    shapes = infer_shapes(load_model(proto).view())
    api.memory_profile(proto)
    assert time.process_time() - start < SECONDS
    assert max(len(dim.terms) for dims in shapes.graph.dims for dim in dims or ()) <= 2


def test_a_tensor_that_is_read_twice_by_one_node_is_freed_once() -> None:
    situation = made("many_paths")
    # Two levels of two tensors of n rows, at most.
    assert 3 * 32 * 6 <= peak(situation.proto, {"n": 6}) <= 4 * 32 * 6


def test_a_late_shape_holds_no_wide_tensor() -> None:
    """The order that really runs is planned, and holds one of the wide tensors at a time."""
    proto, at, wide = made("late_shape").proto, {"N": 32}, 4 * 32 * 4096
    in_file_order = peak_of_listed(proto, at)
    planned = api.optimize(proto, ort_level="none").proto
    assert in_file_order == 2 * wide + 2 * 4 * 32
    assert wide < peak(planned, at) < 2 * wide


def peak_of_listed(proto: onnx.ModelProto, at: Mapping[str, int]) -> int:
    """Bytes in use at most where the nodes run strictly as they are listed."""
    view = load_model(proto).view()
    shapes = infer_shapes(view)
    order = tuple(range(len(view.graph.nodes)))
    made_plan = plan(view.graph, order, from_written(shapes.graph), None, lambda graph: order)
    return int(profile(made_plan, value_sizes(shapes.graph)).in_use.evaluate([at]).max())


def test_what_only_branches_read_is_kept() -> None:
    situation = made("captured_by_branches")
    planned = api.optimize(situation.proto, ort_level="none").proto
    nodes = [n.op_type for n in planned.graph.node]
    assert nodes.index("Relu") < nodes.index("If")
    assert [t.name for t in planned.graph.initializer] == ["W"]
    branches = [a.g for n in planned.graph.node if n.op_type == "If" for a in n.attribute]
    assert not [t.name for g in branches for t in g.initializer]


def test_weights_of_branches_stay_beside_the_file(tmp_path: Path) -> None:
    given, out = tmp_path / "given", tmp_path / "out"
    given.mkdir()
    out.mkdir()
    source, planned = given / "model.onnx", out / "planned.onnx"
    situation = made("weights_of_branches")
    onnx.save_model(
        situation.proto, str(source), save_as_external_data=True, location="weights.bin", size_threshold=0,
        convert_attribute=False,
    )  # fmt: skip
    before = {path.name: path.read_bytes() for path in given.iterdir()}
    api.optimize(source, planned)
    assert {path.name: path.read_bytes() for path in given.iterdir()} == before
    at = situation.sizes[0]
    arrays = feeds(situation.proto, at, situation.given(at))
    expected = outputs(source, arrays)
    shutil.rmtree(given)
    assert planned.stat().st_size < 20_000
    beside = sum(path.stat().st_size for path in out.iterdir() if path != planned and path.suffix != ".json")
    assert 3 * 64 * 64 * 4 <= beside <= 3 * 64 * 64 * 4 + 3 * 4096
    assert np.allclose(outputs(planned, arrays)[0], expected[0], rtol=1e-4, atol=1e-5)


def test_shapes_need_no_weights(tmp_path: Path) -> None:
    source = tmp_path / "model.onnx"
    proto = made("weights_of_branches").proto
    onnx.save_model(
        proto, str(source), save_as_external_data=True, location="weights.bin", size_threshold=0,
        convert_attribute=False,
    )  # fmt: skip
    (tmp_path / "weights.bin").unlink()
    assert api.dims_by_name(source)["y"] == ["N", 64]


def test_results_are_the_same_bytes_under_any_hash_seed(tmp_path: Path) -> None:
    """Names that could be merged one way or another are not."""
    source = tmp_path / "model.onnx"
    onnx.save(made("free_masks").proto, source)
    command = "from onnx_symmem.cli.main import main; main()"
    found = set()
    for seed in ("0", "1", "2"):
        out = tmp_path / f"{seed}.onnx"
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        for arguments in (["shapes", str(source), "--json"], ["optimize", str(source), "-o", str(out)]):
            text = subprocess.run(
                [sys.executable, "-c", command, *arguments], env=environment, check=True, capture_output=True
            ).stdout
            if arguments[0] == "shapes":
                figures = json.loads(text)
                del figures["seconds"]
        found.add((json.dumps(figures), out.read_bytes()))
    assert len(found) == 1
