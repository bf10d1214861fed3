"""Options of the search for an order: budget, seed, explanation."""

from __future__ import annotations

import pytest

from onnx_symmem.graph.load import load_model


def test_the_same_options_give_the_same_bytes(command, folder):
    for name in ("a", "b"):
        found = command("optimize", "plain.onnx", "-o", f"{name}.onnx", "--no-verify", "--time-budget", "1")
        assert found.code == 0, found.err
    assert (folder / "a.onnx").read_bytes() == (folder / "b.onnx").read_bytes()


def test_a_budget_of_zero_tries_heuristics_only(command, folder):
    found = command(
        "optimize", "plain.onnx", "-o", "a.onnx", "--no-verify", "--time-budget", "0", "--seed", "3", "--json"
    )
    assert found.code == 0, found.err
    assert "+search" not in found.out
    assert load_model(folder / "a.onnx").proto.graph.node


def test_the_explanation_names_what_is_held_and_what_would_help(command):
    found = command("optimize", "plain.onnx", "-o", "a.onnx", "--no-verify", "--explain-order")
    assert found.code == 0, found.err
    for words in ("How the order came about", "held there", "wide", "every order holds"):
        assert words in found.out
    assert (
        "How the order came about" not in command("optimize", "plain.onnx", "-o", "a.onnx", "--no-verify").out
    )


@pytest.mark.parametrize("budget", ["-1", "soon"])
def test_other_budgets_are_refused_in_one_line(command, budget):
    found = command("optimize", "plain.onnx", "-o", "a.onnx", "--time-budget", budget)
    assert found.code == 2
    assert "--time-budget" in found.err
