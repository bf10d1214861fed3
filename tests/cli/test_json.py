"""`--json`: one document on stdout; its fields are those of docs/json.md, no more and no less."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest

from models.build import build
from onnx_symmem.report.measurements import measured_run
from onnx_symmem.run.measure import measure
from onnx_symmem.run.predict import WrongDims
from tests.cli.conftest import Command
from tests.run.towers import towers

ROOT = Path(__file__).parents[2]
DOC = ROOT / "docs" / "json.md"
ROW = re.compile(r"^\| (?:`(?P<field>[^`]+)`|all of) \| (?P<type>.+?) \| ")
PART = re.compile(r"\[(?P<name>[^\]]+)\]\(#")
EXAMPLE = re.compile(r"<!-- example: (?P<verb>\w+) -->\n+(?:```json\n(?P<text>.*?)```\n)?", re.DOTALL)
VERBS = ("optimize", "run", "compare", "shapes", "why", "report", "fit", "check", "doctor")
Sections = Mapping[str, list[tuple[str, str]]]


# ---------------------------------------------------------------------------------------- the document


def sections() -> Sections:
    """Heading -> (field, type) of its table."""
    found: dict[str, list[tuple[str, str]]] = {}
    title = ""
    for line in DOC.read_text().splitlines():
        if line.startswith("#"):
            title = line.lstrip("# ")
        elif (match := ROW.match(line)) and match["field"] != "field":
            found.setdefault(title, []).append((match["field"] or "", match["type"]))
    return found


def documented(known: Sections, section: str, prefix: str = "") -> Iterator[tuple[str, str]]:
    """(path, type) of every field, parts put in."""
    for field, kind in known[section]:
        path = ".".join(p for p in (prefix, field) if p)
        part = PART.search(kind)
        if part is None:
            yield path, kind
        else:
            yield from documented(known, part["name"], path + ("[]" if kind.startswith("list of") else ""))


def fields(value: Any, maps: frozenset[str], path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, value) of every leaf; a map with free keys is a leaf, so is a list of plain values."""
    if isinstance(value, dict) and path not in maps:
        for key, inner in value.items():
            yield from fields(inner, maps, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and any(isinstance(v, dict) for v in value):
        for inner in value:
            yield from fields(inner, maps, f"{path}[]")
    else:
        yield path, value


def fits(kind: str, value: Any) -> bool:
    """Whether a value is of a documented type."""
    if value is None:
        return "null" in kind
    if kind.startswith("map"):
        return isinstance(value, dict) and all(isinstance(v, int | float) for v in value.values())
    if kind.startswith("list"):
        plain = (int, str) if "number or text" in kind else int if "number" in kind else str
        plain = float if "fraction" in kind else plain
        allowed = (plain, type(None)) if kind.endswith(("number or null", "fraction or null")) else plain
        return isinstance(value, list) and all(isinstance(v, allowed) for v in value)
    if kind.startswith("true"):
        return isinstance(value, bool)
    if kind.startswith("number"):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return kind.startswith("text") and isinstance(value, str)


# ---------------------------------------------------------------------------------------- real outputs


def document(command: Command, *argv: str) -> dict[str, Any]:
    found = command(*argv, "--json")
    assert found.err == ""
    assert found.code == 0
    assert found.out.endswith("}\n")
    value = json.loads(found.out)
    assert isinstance(value, dict)
    return value


def with_mismatch(folder: Path) -> dict[str, Any]:
    """A run whose prediction is off: no real one is, so one predicted number and one dim are changed."""
    found = measure(folder / "plain.onnx", {"batch": 2, "seq": 3}, latency_runs=0)
    nodes = [dataclasses.replace(found.nodes[0], predicted=1), *found.nodes[1:]]
    wrong = (WrongDims("flat", "fold", "[7, 8]", (6, 8)),)
    prediction = dataclasses.replace(found.prediction, nodes=tuple(nodes), wrong_dims=wrong)
    return measured_run(dataclasses.replace(found, prediction=prediction)).to_json()


@pytest.fixture
def outputs(command: Command, folder: Path) -> Mapping[str, list[dict[str, Any]]]:
    """Real documents per verb, the first for the example in the docs."""
    # Peaks that nothing limits are null, and a note on stderr says why.
    found = command("optimize", "free.onnx", "-o", "free_planned.onnx", "--no-verify", "--json")
    free = json.loads(found.out)
    assert [f"onnx-symmem: note: {notice}" for notice in free["notices"]] == found.err.splitlines()
    onnx.save(towers(), folder / "towers.onnx")
    onnx.save(build("transformer_train", layers=1, width=32), folder / "train.onnx")
    quick = ("--time-budget", "0", "--no-verify", "--dim", "batch=1..8", "--dim", "seq=1..256")
    tall = ("--dim", "n0=8..1024", "--dim", "n1=8..1024")
    at, odd_at = ("--at", "batch=2,seq=3"), ("--at", "batch=2,seq=3,length=3")
    return {
        "optimize": [
            document(command, "optimize", "plain.onnx", "-o", "planned.onnx", "--dim", "batch=1..64"),
            document(command, "optimize", "odd.onnx", "-o", "odd_planned.onnx"),
            free,
            document(command, "optimize", "towers.onnx", "-o", "towers_planned.onnx", *tall),
            document(command, "optimize", "train.onnx", "-o", "levels.onnx", "--levels", "1", *quick),
            document(command, "optimize", "plain.onnx", "-o", "why.onnx", "--no-verify", "--explain-order"),
        ],
        "run": [
            document(command, "run", "planned.onnx", *at),
            document(command, "run", "odd.onnx", *odd_at),
            document(command, "run", "towers_planned.onnx", "--at", "n0=50,n1=90"),
            with_mismatch(folder),
        ],
        "compare": [document(command, "compare", "plain.onnx", "planned.onnx", *at)],
        "shapes": [
            document(command, "shapes", "plain.onnx"),
            document(command, "shapes", "odd.onnx", "--write", "odd_shapes.onnx"),
        ],
        "why": [
            document(command, "shapes", "plain.onnx", "--why", "back"),
            document(command, "shapes", "odd.onnx", "--why", "found"),
            document(command, "shapes", "odd.onnx", "--why", "kept"),
        ],
        "report": [
            document(command, "report", "plain.onnx", *at),
            document(command, "report", "odd.onnx"),
            document(command, "report", "odd.onnx", "--against", "plain.onnx", *at),
            document(command, "report", "towers_planned.onnx"),
        ],
        "fit": [
            document(command, "fit", "plain.onnx", "--budget", "1MiB", "--solve", "batch", "--at", "seq=16"),
            document(command, "fit", "plain.onnx", "--budget", "100", "--solve", "batch,seq"),
        ],
        "check": [
            document(command, "check", "plain.onnx", "--max-peak", "1MiB", *at),
            json.loads(command("check", "plain.onnx", "--max-peak", "1MiB", "--json").out),
        ],
        "doctor": [
            json.loads(command("doctor", "plain.onnx", *at, "--set", "mem_pattern=on", "--json").out),
            json.loads(command("doctor", "plain.onnx", *at, "--shipped", "--json").out),
        ],
    }


def test_every_field_is_documented_and_every_documented_field_is_there(
    outputs: Mapping[str, list[dict[str, Any]]],
) -> None:
    known = sections()
    for verb in VERBS:
        kinds = dict(documented(known, verb))
        maps = frozenset(path for path, kind in kinds.items() if kind.startswith("map"))
        seen: set[str] = set()
        for output in outputs[verb]:
            assert list(output)[:2] == ["schema", "version"]
            for path, value in fields(output, maps):
                if value == [] and path not in kinds:
                    continue  # a list of parts that is empty here
                if value is None and any(p.startswith(f"{path}.") for p in kinds):
                    continue  # a part that is not there
                assert path in kinds, f"{verb}: {path} is not documented"
                assert fits(kinds[path], value), f"{verb}: {path} = {value!r} is no {kinds[path]}"
                seen.add(path)
        # In a comparison the parts of a run are the same; what is empty there was seen in `run`.
        absent = [p for p in kinds if p not in seen and not (verb == "compare" and "[]" in p)]
        assert absent == [], f"{verb}: documented, but in no output"


def shortened(value: Any, path: str = "") -> Any:
    """A document with its lists cut to their first entry, and what differs from run to run at 0."""
    if isinstance(value, dict):
        return {k: 0.0 if path == "seconds" else shortened(v, k) for k, v in value.items()}
    if isinstance(value, list):
        plain = path in ("dims", "peaks", "measured", "files") and not any(isinstance(v, dict) for v in value)
        return value if plain else [shortened(v, path) for v in value[:1]]
    return 0.0 if path.endswith("_ms") and value is not None else value


def test_the_examples_have_the_fields_of_real_outputs(outputs: Mapping[str, list[dict[str, Any]]]) -> None:
    text = DOC.read_text()
    if os.environ.get("SYMMEM_GOLDEN") == "write":
        for verb in VERBS:
            example = json.dumps(shortened(outputs[verb][0]), indent=2, ensure_ascii=False)
            block = f"<!-- example: {verb} -->\n\n```json\n{example}\n```\n"
            text = EXAMPLE.sub(lambda m, v=verb, b=block: b if m["verb"] == v else m[0], text)
        DOC.write_text(text)
    examples = {m["verb"]: m["text"] for m in EXAMPLE.finditer(text)}
    assert set(examples) == set(VERBS)
    known = sections()
    for verb in VERBS:
        kinds = dict(documented(known, verb))
        maps = frozenset(path for path, kind in kinds.items() if kind.startswith("map"))
        written = dict(fields(json.loads(examples[verb]), maps))
        real = dict(fields(shortened(outputs[verb][0]), maps))
        assert list(written) == list(real)
        assert all(fits(kinds[path], value) for path, value in written.items() if path in kinds)


# ---------------------------------------------------------------------------------- what the figures say


def test_prediction_and_measurement_agree(outputs: Mapping[str, list[dict[str, Any]]]) -> None:
    for output in outputs["run"][:2]:
        assert output["predicted_peak"] == output["measured_peak"] == output["runs"][0]["measured_peak"]
        assert output["nodes_equal"] == 1.0
        assert output["label"] == "exact"
        assert len(output["runs"]) == 2
        assert output["latency_ms"] > 0


def test_the_plan_is_better_and_what_it_says_comes_true(outputs: Mapping[str, list[dict[str, Any]]]) -> None:
    found = outputs["optimize"][0]
    assert found["never_worse"] == "proved"
    assert [s["name"] for s in found["symbols"]] == ["batch", "seq"]
    assert found["symbols"][0]["hi"] == 64
    for before, after, least in zip(
        *(found["peak"][k]["at"] for k in ("before", "after", "lower_bound")), strict=True
    ):
        assert least["bytes"] <= after["bytes"] < before["bytes"]
        shape = after["shape"]
        assert eval_formula(found["peak"]["after"]["formula"], shape) == after["bytes"]
    shape = {"batch": 2, "seq": 3}
    run = outputs["run"][0]
    assert eval_formula(found["peak"]["after"]["formula"], shape) == run["measured_peak"]
    assert found["verified"][0]["bit_equal"]


def eval_formula(text: str, shape: Mapping[str, int]) -> int:
    from onnx_symmem.expr.text import parse

    inner = text.removeprefix("max(").removesuffix(")") if text.startswith("max(") else text
    return max(parse(part).evaluate(shape) for part in inner.split(", "))


def test_a_dim_reads_as_its_name(command: Command, folder: Path) -> None:
    from onnx_symmem.expr.text import parse

    sizes = {"N-1": 3, "batch size": 5, "max": 7}
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, list(sizes)) for n in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "named", [x], [y])
    onnx.save(onnx.helper.make_model(graph, ir_version=10), folder / "named.onnx")
    for tensor in document(command, "shapes", "named.onnx")["tensors"]:
        assert [parse(dim).evaluate(sizes) for dim in tensor["dims"]] == [3, 5, 7]


def test_a_comparison_tells_planned_from_shipped(outputs: Mapping[str, list[dict[str, Any]]]) -> None:
    (found,) = outputs["compare"]
    assert found["outputs"]["bit_equal"]
    assert found["outputs"]["level"] == "extended"
    assert found["after"]["measured_peak"] < found["before"]["measured_peak"]
    assert [found[k]["settings"] for k in ("shipped", "before", "after")] == ["shipped", "baseline", "kept"]
    assert [found[k]["optimization"] for k in ("shipped", "before", "after")] == ["all", "extended", "none"]
    for run in (found["before"], found["after"]):
        assert run["predicted_peak"] == run["measured_peak"]
        assert run["nodes_equal"] == 1.0
    assert found["shipped"]["predicted_peak"] is None
    assert found["shipped"]["why_not"]


def test_the_report_agrees_with_the_run(
    command: Command, outputs: Mapping[str, list[dict[str, Any]]]
) -> None:
    run = document(command, "run", "plain.onnx", "--at", "batch=2,seq=3")
    (found,) = outputs["report"][0]["shapes"]
    assert found["bytes"] == run["measured_peak"]
    assert max(found["timeline"]) == found["timeline"][found["step"]] == found["bytes"]
    assert sum(t["bytes"] for t in found["tensors"]) == found["bytes"]
    assert found["scopes"]["outputs"] + found["scopes"]["activations"] == found["bytes"]
    assert found["scopes"]["inputs"] == 2 * 3 * 8 * 4


def test_a_peak_that_nothing_limits_is_null(outputs: Mapping[str, list[dict[str, Any]]]) -> None:
    found = outputs["optimize"][2]
    bounds = {u["tensor"]: (u["symbol"], u["bound"]) for u in found["unknown_dims"]}
    assert {name: bound for name, (_, bound) in bounds.items()} == {"blank": None, "kept": "n"}
    free, kept = bounds["blank"][0], bounds["kept"][0]
    for which in ("before", "after", "lower_bound"):
        assert found["peak"][which]["at"]
        for at in found["peak"][which]["at"]:
            assert at["bytes"] is None
            assert free not in at["shape"]
            assert at["shape"][kept] == at["shape"]["n"]
    assert {p for c in found["candidates"] for p in c["peaks"]} == {None}
    assert f"grow with {free}, which depends on data and has no known limit" in found["notices"][0]


def test_shapes_are_written(outputs: Mapping[str, list[dict[str, Any]]], folder: Path) -> None:
    written = onnx.load(folder / "odd_shapes.onnx")
    dims = {
        v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in written.graph.value_info
    }
    assert dims["place"] == ["seq", 8]
    assert dims["hits"] == [3, "u0"]
    assert outputs["shapes"][1]["written"] == "odd_shapes.onnx"


# ---------------------------------------------------------------------------------------- differing outputs


def test_a_comparison_on_the_terminal(command: Command, folder: Path) -> None:
    assert command("optimize", "plain.onnx", "-o", "planned.onnx", "--no-verify").code == 0
    text = command("compare", "plain.onnx", "planned.onnx", "--at", "batch=16,seq=64").out
    lines = [line.split() for line in text.splitlines()]
    assert ["predicted", "measured", "in", "use", "held", "ms"] in lines
    rows = {line[0]: line for line in lines if len(line) == 6 and line[0] in ("before", "after")}
    assert rows["before"][1:3] == ["2.25", "2.25"]
    assert rows["after"][1:3] == ["1.25", "1.25"]
    assert text.count("10 of 10, to the byte") == 2
    assert "ONNX Runtime's graph at level extended and its order" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


def test_outputs_that_differ_are_code_1_and_still_a_document(command: Command, folder: Path) -> None:
    model = onnx.load(folder / "plain.onnx")
    tanh = next(n for n in model.graph.node if n.op_type == "Tanh")
    tanh.op_type = "Sigmoid"
    onnx.save(model, folder / "other.onnx")
    argv = ("compare", "plain.onnx", "other.onnx", "--at", "batch=2,seq=3", "--json")
    found = command(*argv)
    assert found.code == 1
    outputs = json.loads(found.out)["outputs"]
    assert not outputs["equal"]
    assert not outputs["bit_equal"]
    assert found.err == f"onnx-symmem: error: {outputs['reason']}\n"
    assert "output 'y'" in outputs["reason"]
    assert 0.001 < outputs["worst_relative"] < 10
    assert outputs["worst_absolute"] > 0


def test_rounding_is_told_from_difference(command: Command, folder: Path) -> None:
    model = onnx.load(folder / "plain.onnx")
    down = next(t for t in model.graph.initializer if t.name == "down")
    weights = onnx.numpy_helper.to_array(down)
    down.CopyFrom(onnx.numpy_helper.from_array(weights * weights.dtype.type(1 + 1e-6), "down"))
    onnx.save(model, folder / "near.onnx")
    argv = ("compare", "plain.onnx", "near.onnx", "--at", "batch=2,seq=3")
    outputs = document(command, *argv)["outputs"]
    assert outputs["equal"]
    assert not outputs["bit_equal"]
    assert 0 < outputs["worst_relative"] < 1e-5
    strict = command(*argv, "--json", "--tolerance", "0")
    assert strict.code == 1


# ---------------------------------------------------------------------------------------- processes


RUN = """
import sys
from onnx_symmem.cli.main import main
sys.exit(max(main(argv.split()) for argv in sys.argv[1:]))
"""


def process(folder: Path, seed: str, *commands: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONHASHSEED": seed}
    argv = [sys.executable, "-c", RUN, *commands]
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_hash_seeds_change_nothing(folder: Path) -> None:
    results = []
    for seed in ("0", "4711"):
        found = process(
            folder,
            seed,
            "optimize plain.onnx -o out.onnx --json",
            "optimize odd.onnx -o odd_out.onnx --json",
            "shapes odd.onnx --json",
            "report odd.onnx --json",
        )
        assert (found.returncode, found.stderr) == (0, "")
        text = re.sub(r'"seconds": \{[^}]*\}', "", found.stdout)
        files = {name: (folder / name).read_bytes() for name in ("out.onnx", "odd_out.onnx")}
        results.append((text, files))
    assert results[0] == results[1]


def test_json_is_all_there_is_on_stdout(folder: Path) -> None:
    for argv in ("optimize plain.onnx -o out.onnx", "run plain.onnx --at batch=1,seq=2", "report odd.onnx"):
        found = process(folder, "0", f"{argv} --json --verbose")
        assert found.returncode == 0
        json.loads(found.stdout)
        assert found.stderr


def test_help_of_a_verb_is_cheap() -> None:
    code = (
        "import sys\nfrom onnx_symmem.cli.main import main\n"
        "for verb in ('optimize', 'run', 'compare', 'shapes', 'report'): main([verb, '--help'])\n"
        "heavy = [m for m in ('numpy', 'onnx', 'onnxruntime', 'rich') if m in sys.modules]\n"
        "sys.exit(' '.join(heavy) or 0)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")
