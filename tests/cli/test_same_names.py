"""The command and the Python API say the same things by the same names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import click
import pytest
from onnx_symmem.cli.main import VERBS

from onnx_symmem import api
from onnx_symmem.errors import UsageError
from tests.cli.small import plain_model

COMMAND_ONLY = {"completion"}  # speaks of the command itself
# The table of docs/reference/api.md, "The same as on the command line"; one spelling for all verbs.
CALLED = {
    "dim": "domain",
    "ep": "provider",
    "input": "inputs",
    "output": "out",
    "write": "out",
    "set": "changes",
    "no_verify": "verify",
    "explain_order": "explain",
    "count": "counts",
}
ON_SCREEN = {"json", "relations", "weights"}  # how a result is shown
SEVERAL = {"out_dir", "jobs", "parallel_backend"}  # `optimize` for many models, one call each in Python
PYTHON_ONLY = {"progress", "search"}

PLANNED = [verb for verb in VERBS if verb not in COMMAND_ONLY]


def option_names(verb: str) -> set[str]:
    """What a verb takes, by its longest spelling and as Python calls it."""
    names = set()
    for param in VERBS[verb].load().params:
        spelled = max(param.opts, key=len).lstrip("-").replace("-", "_")
        if isinstance(param, click.Argument):
            spelled = str(param.name)
        elif not param.expose_value:
            continue  # the flags
        names.add(CALLED.get(spelled, spelled))
    return names - ON_SCREEN - SEVERAL


def parameters(verb: str) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(getattr(api, verb)).parameters)


@pytest.mark.parametrize("verb", PLANNED)
def test_a_verb_and_its_function_take_the_same(verb: str) -> None:
    names = option_names(verb)
    if verb == "optimize":
        names = names - {"models"} | {"model"}
    assert parameters(verb).keys() - PYTHON_ONLY == names


@pytest.mark.parametrize("verb", PLANNED)
def test_defaults_are_the_same(verb: str) -> None:
    found = parameters(verb)
    for param in VERBS[verb].load().params:
        name = max(param.opts, key=len).lstrip("-").replace("-", "_")
        name = CALLED.get(name, name)
        default = param.to_info_dict()["default"]
        if isinstance(param, click.Option) and isinstance(default, str | int | float) and name in found:
            spelled_out = {"reserve": "0"}.get(name)
            expected = not found[name].default if name == "verify" else found[name].default
            assert default in (expected, spelled_out), (verb, name)


@pytest.mark.parametrize("name", api.__all__)
def test_public_functions_are_typed_and_say_everything(name: str) -> None:
    function: Callable[..., Any] = getattr(api, name)
    if inspect.isclass(function):
        assert function.__doc__
        return
    signature = inspect.signature(function)
    text = inspect.getdoc(function) or ""
    assert signature.return_annotation is not inspect.Signature.empty
    for parameter in signature.parameters.values():
        assert parameter.annotation is not inspect.Parameter.empty
        if function.__module__.startswith("onnx_symmem.api") and parameter.default is not parameter.empty:
            assert f"\n{parameter.name}: " in text, parameter.name
    if function.__module__.startswith("onnx_symmem.api"):
        assert "\nErrors: " in text
        assert "Source: " in text.replace("\n", " ")


def test_deploy_knows_its_languages() -> None:
    with pytest.raises(UsageError, match="language 'cobol' is not known"):
        api.deploy(plain_model(), "cobol")
    with pytest.raises(UsageError, match="plain: only Python can set"):
        api.deploy(plain_model(), "cpp")
    assert "create_session" in api.deploy(plain_model(), "python") or "InferenceSession" in api.deploy(
        plain_model(), "python"
    )


def test_check_takes_one_model_or_several_and_says_no_without_an_error() -> None:
    one = api.check(plain_model(), 1 << 30, at={"batch": 2, "seq": 8})
    assert one.holds
    two = api.check([plain_model(), plain_model()], 1000, at=[{"batch": 2, "seq": 8}])
    assert [each.holds for each in two.checks] == [False, False]
    assert not two.holds


def test_progress_is_told_in_order() -> None:
    told: list[tuple[str, int, int]] = []
    api.compare(
        plain_model(), plain_model(), {"batch": 1, "seq": 2}, progress=lambda *step: told.append(step)
    )
    steps = [(done, total) for _, done, total in told if total]
    assert steps == [(k, 26) for k in range(25)]
    assert list(dict.fromkeys(stage for stage, _, _ in told)) == [
        "inferring shapes",
        "running before, as shipped",
        "running before, ONNX Runtime's graph and order at level extended",
        "running after, as planned",
        "comparing outputs",
    ]
