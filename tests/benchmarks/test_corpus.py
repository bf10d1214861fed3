import json
import shutil

import pytest

from benchmarks.corpus import main, measure_models
from benchmarks.environment import without_options
from benchmarks.trials import plan_only, trial
from benchmarks.weights import prepare, read_cases

NAME = "whisper_decoder"


@pytest.fixture(scope="module")
def result(filled_model, cases):
    return trial(NAME, cases[NAME].source, filled_model(NAME), cases[NAME].shapes)


def test_model_is_planned_and_measured_at_three_shapes(result, cases):
    assert result.failed == ""
    assert result.never_worse == "proved"
    assert [row.shape for row in result.shapes[:2]] == list(cases[NAME].shapes[:2])
    assert len(result.shapes) == 3
    largest = result.shapes[2].shape
    assert any(
        len({largest[name] / size for name, size in case.items()}) == 1 for case in cases[NAME].shapes
    ), "all dims grow by the same factor"


def test_prediction_is_measurement(result):
    for row in result.shapes:
        assert row.equal
        assert row.differences == ()
        assert row.before_predicted == row.before_measured
        assert row.measured <= row.before_measured


def test_planned_takes_less_than_shipped_where_memory_matters(result):
    row = result.shapes[-1]
    assert row.in_use_ratio < 0.5
    assert row.held_ratio < 0.4


def test_model_without_weights_is_planned_only(cases):
    found = plan_only("kv", "", cases["llama_8l_kv"].structure)
    assert (found.failed, found.level, found.shapes) == ("", "none", ())
    assert found.never_worse in ("proved", "kept")
    assert found.peaks
    assert "planned only" in found.notes[0]


def test_failure_is_a_result(tmp_path, capsys):
    (tmp_path / "m.onnx").write_bytes(b"")
    (found,) = measure_models(tmp_path, {"m": {"source": "", "cases": [{"n": 1}]}}, lambda _: None)
    assert "the file is empty" in found.failed
    assert "the file is empty" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------ folder


FILL = """
import sys
from pathlib import Path
here, out = Path(__file__).parent, Path(sys.argv[1])
for name in sys.argv[2:]:
    (out / f"{name}.onnx").write_bytes((here / f"{name}.onnx").read_bytes())
    with (out / f"{name}.weights").open("wb") as file:
        file.truncate(1 << 26)
with (out / "calls").open("a") as file:
    print(*sys.argv[2:], file=file)
"""


@pytest.fixture
def folder(tmp_path, cases):
    """A corpus of one model with cases and one without."""
    made = tmp_path / "corpus"
    made.mkdir()
    shutil.copyfile(cases[NAME].structure, made / "one.onnx")
    shutil.copyfile(cases[NAME].structure, made / "two.onnx")
    (made / "cases.json").write_text(json.dumps({"two": {"source": "s", "cases": []}, "gone": {}}))
    (made / "fill_weights.py").write_text(FILL)
    return made


def test_cases_are_those_of_models_that_are_there(folder):
    assert list(read_cases(folder)) == ["two", "one"]
    assert list(read_cases(folder, ["one"])) == ["one"]
    with pytest.raises(ValueError, match="no model three; it has two, one"):
        read_cases(folder, ["three"])


def test_weights_are_written_once(folder, tmp_path, cases):
    out = tmp_path / "filled"
    location = f"{NAME}.weights"
    (folder / "fill_weights.py").write_text(FILL.replace('f"{name}.weights"', repr(location)))
    prepare(folder, out, ["one", "two"])
    prepare(folder, out, ["one", "two"])
    assert (out / "calls").read_text() == "one two\n"
    (folder / "two.onnx").write_bytes(cases["llama_8l_kv"].structure.read_bytes())
    prepare(folder, out, ["one", "two"])
    assert (out / "calls").read_text() == "one two\ntwo\n"


# ------------------------------------------------------------------------------------------------ command


def test_no_corpus_is_said_and_fine(tmp_path, capsys):
    assert main(["--corpus", str(tmp_path)]) == 0
    assert "no corpus here" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--planning", "many"], "expected whole numbers"),
        (["--models", "three"], "no model three"),
        (["--render", "nowhere.json"], "nowhere.json"),
    ],
)
def test_wrong_usage(folder, arguments, words, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--corpus", str(folder), *arguments])
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


def test_command_in_the_results_is_what_another_person_types():
    without = without_options(
        ["--json", "here.json", "--models", "a,b", "--corpus=there"], ("--json", "--corpus")
    )
    assert without == ["--models", "a,b"]


def test_planning_alone(folder, tmp_path, monkeypatch, capsys):
    (folder / "cases.json").write_text("{}")
    for model in folder.glob("*.onnx"):
        model.unlink()
    file = tmp_path / "results.json"
    monkeypatch.chdir(tmp_path)
    assert main(["--corpus", str(folder), "--planning", "100", "--json", str(file)]) == 0
    (nodes, seconds) = json.loads(file.read_text())["planning"][0]
    assert 50 < nodes < 200
    assert {"shapes", "plan", "prove"} <= seconds.keys()
    assert f"{nodes} nodes planned" in capsys.readouterr().out
