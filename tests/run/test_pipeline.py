from dataclasses import replace

import onnx
import pytest

from models.build import MODELS
from onnx_symmem.errors import DomainError, ModelFileError, RunFailed, UsageError, VerificationFailed
from onnx_symmem.expr.plan_order import plan_le
from onnx_symmem.graph.load import load_model
from onnx_symmem.run.measure import measure
from onnx_symmem.run.optimized import OptimizeOptions
from onnx_symmem.run.pipeline import _hoisted, optimize_model
from onnx_symmem.run.stated_domain import domain_of


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    """A two-layer decoder file, and the result of optimising it."""
    folder = tmp_path_factory.mktemp("pipeline")
    path = folder / "decoder.onnx"
    onnx.save(MODELS["decoder"].builder(layers=2, width=32, heads=2, vocab=64), path)
    return path, optimize_model(path, folder / "planned.onnx")


def test_the_result_is_proved_and_smaller(decoder):
    _, found = decoder
    choice = found.choice
    assert choice.never_worse == "proved"
    assert plan_le(choice.after.members, choice.before.members, found.shapes.domain).proved
    assert any(choice.after.at(s) < choice.before.at(s) for s in found.samples)
    assert all(found.bound.at(s) <= choice.after.at(s) for s in found.samples)


def test_the_prediction_is_the_measurement(decoder):
    _, found = decoder
    for shape in ({"batch": 2, "dec_seq": 5, "enc_seq": 40}, {"batch": 1, "dec_seq": 1, "enc_seq": 9}):
        measured = measure(found.files[-1], shape, latency_runs=0)
        assert measured.nodes_equal == 1.0
        assert measured.predicted_peak == measured.runs[0].requested_peak == found.choice.after.at(shape)
        assert measured.runs[1].requested_peak == measured.runs[0].requested_peak


def test_outputs_names_and_metadata_stay(decoder):
    path, found = decoder
    before, after = onnx.load(path), onnx.load(found.files[-1])
    assert before.graph.input == after.graph.input
    assert before.graph.output == after.graph.output
    assert len(found.verified) == 2
    assert all(v.equal for v in found.verified)
    onnx.checker.check_model(before)


def test_the_same_input_gives_the_same_bytes(decoder, tmp_path):
    path, found = decoder
    again = optimize_model(path, tmp_path / "planned.onnx")
    for first, second in zip(found.files, again.files, strict=True):
        assert first.read_bytes() == second.read_bytes()


def test_an_object_in_gives_an_object_with_weights_out():
    model = MODELS["mlp_train"].builder()
    found = optimize_model(model, None, {"batch": (1, 64)})
    assert found.files == ()
    assert all(t.data_location == onnx.TensorProto.DEFAULT for t in found.proto.graph.initializer)
    at = {"batch": 3}
    assert measure(found.proto, at, latency_runs=0).nodes_equal == 1.0


def test_level_none_plans_the_model_as_it_is(tmp_path):
    model = MODELS["mlp_train"].builder()
    options = OptimizeOptions(ort_level="none", dispatch=False)
    found = optimize_model(model, tmp_path / "m.onnx", options=options)
    assert sorted(n.op_type for n in found.proto.graph.node) == sorted(n.op_type for n in model.graph.node)
    assert measure(found.files[-1], {"batch": 5}, latency_runs=0).nodes_equal == 1.0


def test_cuda_without_a_device_is_planned_at_basic_and_says_so(tmp_path):
    from onnx_symmem.run.session import cuda_problem

    if cuda_problem() is None:
        pytest.skip("this machine has a CUDA device")
    model = MODELS["mlp_train"].builder()
    found = optimize_model(model, None, options=OptimizeOptions(provider="cuda", verify=False))
    assert found.ort_level == "basic"
    assert "basic instead of extended" in found.notices[0]


def test_cuda_that_cannot_verify_is_refused_before_anything_is_planned(monkeypatch, tmp_path):
    monkeypatch.setattr("onnx_symmem.run.pipeline.cuda_problem", lambda: "no driver")
    monkeypatch.setattr("onnx_symmem.run.pipeline.plan_freed", lambda *_: pytest.fail("was planned"))
    with pytest.raises(UsageError, match="no driver, so no outputs can be verified; .*--no-verify"):
        optimize_model(MODELS["mlp_train"].builder(), None, options=OptimizeOptions(provider="cuda"))


def test_nothing_is_written_when_the_outputs_cannot_be_compared(decoder, tmp_path):
    path, _ = decoder
    ids = load_model(path).proto.graph.input[0].name
    before = sorted(tmp_path.iterdir())
    with pytest.raises((VerificationFailed, RunFailed)):
        optimize_model(path, tmp_path / "m.onnx", options=OptimizeOptions(inputs={ids: "randint:90:99"}))
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("domain", "words"),
    [({"bacth": (1, 4)}, "'bacth' is not a dim.*batch"), ({"batch": (9, 4)}, "upside down")],
)
def test_wrong_domains(domain, words):
    view = load_model(MODELS["mlp_train"].builder()).view()
    with pytest.raises(DomainError, match=words):
        domain_of(view, domain)


def test_a_missing_folder_is_seen_before_any_work(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        optimize_model(tmp_path / "not_even_there.onnx", tmp_path / "no" / "out.onnx")


def test_a_narrow_domain_gives_exact_ranges():
    view = load_model(MODELS["mlp_train"].builder()).view()
    domain = domain_of(view, {"batch": (2, 8)})
    assert (domain.range_of("batch").lo, domain.range_of("batch").hi) == (2, 8)
    assert domain_of(view, domain) is domain


def test_level_none_needs_no_weights(tmp_path):
    path = tmp_path / "m.onnx"
    model = MODELS["mlp_train"].builder()
    onnx.save_model(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    options = OptimizeOptions(ort_level="none", verify=False)
    found = optimize_model(path, tmp_path / "planned.onnx", options=options)
    assert [p.name for p in found.files] == ["planned.onnx"]
    assert optimize_model(path, None, options=options).files == ()
    with pytest.raises(ModelFileError, match="missing"):
        optimize_model(path, None, options=OptimizeOptions(ort_level="none"))
    with pytest.raises(ModelFileError, match="missing"):
        optimize_model(path, None, options=OptimizeOptions(verify=False))


def test_an_order_that_could_not_be_kept_exactly_is_admitted(decoder):
    _, found = decoder
    kept = replace(found.choice, never_worse="kept")
    assert kept.chosen.order != found.before.plan.order
    assert "no file makes ONNX Runtime run its own order" in _hoisted(kept, found.before)[0]
    assert _hoisted(found.choice, found.before) == ()
    assert _hoisted(kept, kept.chosen.profile) == ()
