import io

import pytest
from rich.console import Console

from models import demo
from models.demo import main, run_demo

SMALL = {"layers": 2, "width": 48, "heads": 2, "vocab": 100}
SHAPES = ({"batch": 2, "dec_seq": 5, "enc_seq": 60}, {"batch": 1, "dec_seq": 1, "enc_seq": 33})


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The demo on a small variant of its model: what it found, and what it printed at 80 columns."""
    stream = io.StringIO()
    console = Console(file=stream, width=80, markup=False, highlight=False, emoji=False)
    found = run_demo(console, tmp_path_factory.mktemp("demo"), SHAPES, SMALL)
    return found, stream.getvalue()


def test_predicted_is_measured(shown):
    found, _ = shown
    assert [trial.shape for trial in found.trials] == list(SHAPES)
    for trial in found.trials:
        assert trial.exact
        assert trial.after.predicted_peak == trial.predicted_after <= trial.predicted_before
        assert trial.shipped.predicted_peak is None


def test_outputs_are_verified_at_the_shapes_that_are_shown(shown):
    found, _ = shown
    assert [v.shape for v in found.optimized.figures.verified] == list(SHAPES)
    assert found.planned.is_file()


def test_text_fits_80_columns_and_names_the_next_commands(shown):
    _, text = shown
    assert max(map(len, text.splitlines())) <= 80
    for words in ("bit-equal", "never worse", "as shipped", "right to the byte", "optimize MODEL.onnx"):
        assert words in text


def test_wrong_prediction_is_not_hidden(shown):
    found, _ = shown
    trial = found.trials[0]
    wrong = demo.Trial(trial.shape, trial.shipped, trial.before, trial.after, trial.predicted_before, 1)
    assert not wrong.exact


def test_wrong_option_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["layers=two"])
    assert caught.value.code == 2
    assert "expected KEY=NUMBER" in capsys.readouterr().err
