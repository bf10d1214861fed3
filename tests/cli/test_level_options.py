"""Options of levels: what they may be made with, and what is asked for by asking for them."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import onnx
import pytest
from rich.console import Console

from models.build import build
from onnx_symmem import api
from onnx_symmem.report.results import VerifiedShape
from onnx_symmem.report.text.optimization import show_optimization
from onnx_symmem.rewrite.version_record import versions_of

QUICK = (
    "--no-verify",
    "--time-budget",
    "0",
    "--dim",
    "batch=1..8",
    "--dim",
    "seq=1..128",
    "--ort-level",
    "none",
)


@pytest.fixture
def train(folder):
    onnx.save(build("transformer_train", layers=1, width=64), folder / "train.onnx")
    return ("optimize", "train.onnx", "-o", "levels.onnx", *QUICK)


def _levels(found):
    assert found.code == 0, found.err
    return json.loads(found.out)["levels"]


def test_levels_without_a_limit_leave_it_to_the_run(command, folder, train):
    levels = _levels(command(*train, "--levels", "1", "--json"))
    assert levels["limit"] is None
    assert len(levels["list"]) == 2
    assert levels["list"][0]["runs_at"] == list(range(len(levels["list"][0]["needed"])))
    # Down to the least peak that the allowed slowdown reaches: more time, lower peak.
    more = _levels(command(*train, "--levels", "1", "--max-slowdown", "1.02", "--json"))
    assert more["list"][-1]["needed"][-1] > levels["list"][-1]["needed"][-1]


def test_what_orders_are_above_bounds_no_level_that_repeats(command, folder):
    model = build("transformer_train", layers=1, width=64)
    for dim in (d for i in (*model.graph.input, *model.graph.output) for d in i.type.tensor_type.shape.dim):
        dim.dim_value = {"batch": 8, "seq": 128}.get(dim.dim_param, dim.dim_value)
    onnx.save(model, folder / "fixed.onnx")
    argv = ("optimize", "fixed.onnx", "-o", "levels.onnx", "--no-verify", "--ort-level", "none", "--json")
    free = json.loads(command(*argv, "--levels", "1").out)
    assert free["levels"]["list"][0]["runs_at"] == [0]
    (first,), (second,) = (level["needed"] for level in free["levels"]["list"])
    held = json.loads(command(*argv, "--levels", "1", "--memory-limit", str((first + second) // 2)).out)
    assert held["levels"]["list"][1]["runs_at"] == [0]
    bytes_of = {
        key: [found["peak"][key]["at"][0]["bytes"] for found in (free, held)]
        for key in ("after", "lower_bound")
    }
    assert bytes_of["after"][1] < bytes_of["lower_bound"][0] <= bytes_of["after"][0]
    assert bytes_of["lower_bound"][1] <= bytes_of["after"][1]
    assert held["peak"]["no_order_below"] == [bytes_of["lower_bound"][1]]
    assert not held["optimal"]


def test_asking_for_recomputes_asks_for_levels(command, train):
    assert _levels(command(*train, "--recompute", "--max-slowdown", "1.05", "--json"))["list"][1:]
    assert _levels(command(*train, "--json")) is None
    assert _levels(command(*train, "--no-recompute", "--json")) is None


def test_on_a_device_tensors_go_to_the_host_and_back(command, folder, train):
    found = command(*train, "--ep", "cuda", "--levels", "2", "--no-recompute", "--json")
    levels = _levels(found)["list"]
    assert not any(level["recomputed"] for level in levels)
    assert levels[-1]["offloaded"]
    assert "which only ONNX Runtime runs and" in found.err
    ops = {n.op_type for n in _nodes(onnx.load(folder / "levels.onnx").graph)}
    assert {"MemcpyToHost", "MemcpyFromHost"} <= ops
    assert versions_of(onnx.load(folder / "levels.onnx"))["needs"] == "onnxruntime"
    # A slow way to the host is not taken.
    slow = _levels(command(*train, "--ep", "cuda", "--levels", "2", "--host-bandwidth", "1kB", "--json"))[
        "list"
    ]
    assert not any(level["offloaded"] for level in slow)
    assert slow[-1]["recomputed"]
    without = _levels(command(*train, "--ep", "cuda", "--levels", "1", "--no-offload", "--json"))["list"]
    assert not any(level["offloaded"] for level in without)


def _nodes(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(attribute.g)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--offload",), "offloading needs the provider cuda"),
        (("--levels", "1", "--no-recompute"), "neither recomputing nor offloading"),
        (("--ep", "cuda", "--memory-limit", "1GiB", "--no-recompute", "--no-offload"), "neither"),
        (("--levels", "1", "--host-bandwidth", "0"), "more than 0"),
        (("--levels", "1", "--host-bandwidth", "fast"), "--host-bandwidth 'fast' is not a size"),
        (("--levels", "9"), "--levels"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(command, folder, train, options, words):
    found = command(*train, *options)
    assert found.code == 2
    assert words in found.err
    assert not (folder / "levels.onnx").exists()


def test_where_bits_are_equal_only_unpacked_is_said(folder):
    figures = api.optimize("plain.onnx", verify=False, time_budget=0).figures
    at = (VerifiedShape({"n": 1}, 2), VerifiedShape({"n": 2}, 2, packed=False))
    console = Console(file=io.StringIO(), width=200)
    show_optimization(console, replace(figures, verified=at), verbose=False)
    said = console.file.getvalue()
    assert (
        "original's at n=1; only where neither side packs weights (else last bits differ) at n=2 (2" in said
    )
    console = Console(file=io.StringIO(), width=200)
    show_optimization(console, replace(figures, verified=at[:1]), verbose=False)
    assert "bit-equal to the original's at n=1 (2 outputs)" in console.file.getvalue()
