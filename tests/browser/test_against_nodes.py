"""A run beside another one: the same node is found in both, by what it makes or its name."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from onnx_symmem.rewrite.reorder import reorder_nodes
from tests.browser.conftest import Opened
from tests.cli.small import plain_model

Page = Callable[..., Opened]


def reordered() -> tuple[onnx.ModelProto, onnx.ModelProto, dict[str, int]]:
    """A model, the same with the nodes in another order, and the step of each tensor there."""
    model = plain_model()
    made = {name for node in model.graph.node for name in node.output}
    left, order = list(range(len(model.graph.node))), []
    done: set[str] = set()
    while left:  # the last of the nodes that can run: another order wherever there is one
        node = next(
            k for k in reversed(left) if all(i in done or i not in made for i in model.graph.node[k].input)
        )
        left.remove(node)
        order.append(node)
        done.update(model.graph.node[node].output)
    other = reorder_nodes(model, order)
    for number, node in enumerate(other.graph.node):
        node.name = f"renamed_{number}"
    steps = {node.output[0]: k + 1 for k, node in enumerate(other.graph.node)}
    return model, other, steps


def test_each_moment_says_where_its_node_is_in_the_other_run(open_page: Page) -> None:
    model, other, steps = reordered()
    assert [n.output[0] for n in model.graph.node] != list(steps)
    page = open_page(model, against=other)
    ran = [page.analysis.profile.plan.view.nodes[k] for k in page.analysis.profile.plan.order]
    there = (
        [page.other.profile.plan.view.nodes[k] for k in page.other.profile.plan.order] if page.other else []
    )
    names = {page.other.profile.plan.view.values[n.outputs[0]].name: k for k, n in enumerate(there)}
    profile = page.other.profile
    moved = 0
    for row, node in enumerate(ran):
        page.run("page.timeline.go(arguments[0])", row)
        page.settle()
        name = page.analysis.profile.plan.view.values[node.outputs[0]].name
        step = names[name]
        moved += step != row
        shape = page.run("return page.made.shape")
        in_use = int(profile.in_use.evaluate([shape])[step, 0])
        said = page.text("moment")
        assert f": step {step + 1} of {len(there)}, " in said
        assert page.run("return Number(page.theirs.state.inUse[page.pairs.of(arguments[0])])", row) == in_use
        line = page.run(
            "const e = document.querySelector('.tied.now');"
            "return ['x1', 'x2'].map((a) => Number(e.getAttribute(a)))"
        )
        assert (line[0] < line[1]) == (step < row)
    assert moved
    assert page.complaints() == []


def test_nodes_stand_at_the_same_place_when_asked_for(open_page: Page) -> None:
    model, other, _ = reordered()
    page = open_page(model, against=other)
    before = page.run("return document.querySelector('path.other').getAttribute('d')")
    page.run("document.getElementById('aligned').click()")
    page.settle()
    after = page.run("return document.querySelector('path.other').getAttribute('d')")
    assert after != before
    outline = page.run(
        "const theirs = { model: page.other, state: page.theirs.state };"
        "return page.timeline.alignedTheirs(theirs).map((c) => c.total)"
    )
    base = page.run("return page.timeline.outside(page.theirs.state)")
    profile, mine = page.other.profile, page.analysis.profile
    shape = page.run("return page.made.shape")
    in_use = profile.in_use.evaluate([shape])[:, 0]
    names = {
        profile.plan.view.values[profile.plan.view.nodes[k].outputs[0]].name: row
        for row, k in enumerate(profile.plan.order)
    }
    wanted = [
        base + int(in_use[names[mine.plan.view.values[mine.plan.view.nodes[k].outputs[0]].name]])
        for k in mine.plan.order
    ]
    assert outline == wanted
    page.run("document.getElementById('aligned').click()")
    page.settle()
    assert page.run("return document.querySelector('path.other').getAttribute('d')") == before


def test_a_node_that_is_only_here_is_said_to_be(open_page: Page) -> None:
    model, other, _ = reordered()
    only = onnx.ModelProto()
    only.CopyFrom(other)
    for node in only.graph.node[:1]:
        for k, name in enumerate(node.output):
            for reader in only.graph.node:
                for at, read in enumerate(reader.input):
                    if read == name:
                        reader.input[at] = f"{name}_there"
            node.output[k] = f"{name}_there"
    gone = other.graph.node[0].output[0]
    page = open_page(model, against=only)
    view = page.analysis.profile.plan.view
    row = next(
        row
        for row, k in enumerate(page.analysis.profile.plan.order)
        if view.values[view.nodes[k].outputs[0]].name == gone
    )
    page.run("page.timeline.go(arguments[0])", row)
    page.settle()
    assert "Not in " in page.text("moment")
    assert page.run("return document.querySelector('.tied.now')") is None


def test_without_another_model_there_is_no_such_part(open_page: Page) -> None:
    page = open_page(plain_model())
    assert page.run("return [document.getElementById('aligned'), document.querySelector('.ties')]") == [
        None,
        None,
    ]
