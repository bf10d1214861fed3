"""The public Python functions, on the kinds of models they accept."""

import onnx
import onnx_graphsurgeon as gs
import pytest

import onnx_symmem
from models.build import MODELS
from onnx_symmem.errors import DomainError, UsageError


@pytest.fixture(scope="module")
def model():
    return MODELS["mlp_train"].builder()


def test_paths_protos_and_graphs_give_the_same(model, tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    from_proto = onnx_symmem.dims_by_name(model)
    assert from_proto == onnx_symmem.dims_by_name(path) == onnx_symmem.dims_by_name(str(path))
    graph = onnx_symmem.dims_by_name(gs.import_onnx(model))
    assert {name: graph[name] for name in from_proto} == from_proto


def test_optimize_returns_a_model_and_its_figures(model):
    found = onnx_symmem.optimize(model, domain={"batch": (1, 64)}, verify_at={"batch": 3})
    assert found.to_json()["never_worse"] == found.figures.never_worse == "proved"
    assert [dict(v.shape) for v in found.figures.verified] == [{"batch": 3}]
    session = onnx_symmem.create_session(found.proto)
    assert [o.name for o in session.get_outputs()] == [o.name for o in model.graph.output]
    measured = onnx_symmem.measure(found.proto, {"batch": 7}, latency_runs=0)
    assert measured.predicted_peak == measured.runs[0].requested_peak
    assert found.details.choice.after.at({"batch": 7}) == measured.predicted_peak


def test_the_memory_profile_of_a_model_as_it_is(model):
    profile = onnx_symmem.memory_profile(model, {"batch": (1, 8)})
    measured = onnx_symmem.measure(model, {"batch": 5}, latency_runs=0)
    assert int(profile.in_use.evaluate([{"batch": 5}]).max()) == measured.runs[0].requested_peak
    default = onnx_symmem.memory_profile(model, order="default")
    assert sorted(default.plan.order) == sorted(profile.plan.order)


@pytest.mark.parametrize("domain", [{"batch": (4,)}, {"batch": "8"}, {"batch": (8, 4)}, {"nope": 3}])
def test_wrong_domains_are_one_line(model, domain):
    with pytest.raises(DomainError) as caught:
        onnx_symmem.infer_shapes(model, domain)
    assert "\n" not in str(caught.value)


def test_wrong_options_are_one_line(model):
    with pytest.raises(UsageError, match="order 'alphabetical'"):
        onnx_symmem.memory_profile(model, order="alphabetical")
    with pytest.raises(UsageError, match="provider 'tpu'"):
        onnx_symmem.memory_profile(model, provider="tpu")
    with pytest.raises(DomainError, match="expected a size"):
        onnx_symmem.measure(model, {"batch": "many"})
