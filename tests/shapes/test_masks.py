"""Masks of single values: no element is counted twice, and no position of TopK twice in a row."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.text import parse
from onnx_symmem.shapes.table import ModelShapes
from tests.shapes.building import BOOL, FLOAT, INT64, graph, infer, model, node, texts, value

X = value("x", FLOAT, ["t", 6])
POSITIONS = value("p", INT64, ["t", 2])
TOPK = node("TopK", "x k", "best chosen")
PICKED = {"two": np.int64(2), "three": np.int64(3), "four": np.int64(4), "k": [2]}


def compared(*names: str, source: str = "chosen") -> list[onnx.NodeProto]:
    found = []
    for name in names:
        found += [
            node("Equal", f"{source} {name}", f"is_{name}"),
            node("NonZero", f"is_{name}", f"at_{name}"),
        ]
    return found


def one_hot(*names: str) -> list[onnx.NodeProto]:
    """As experts are looked for in exported models: one-hot, experts first, one of them, where it is set."""
    found = [
        node("OneHot", "chosen depth values", "hot", axis=-1),
        node("Transpose", "hot", "turned", perm=[2, 1, 0]),
    ]
    for name in names:
        found += [
            node("Gather", f"turned {name}", f"is_{name}", axis=0),
            node("Cast", f"is_{name}", f"bool_{name}", to=BOOL),
            node("NonZero", f"bool_{name}", f"at_{name}"),
        ]
    return found


def spread(*names: str) -> list[onnx.NodeProto]:
    found = [
        node("Unsqueeze", "chosen last", "wide"),
        node("Equal", "wide experts", "hot"),
        node("Transpose", "hot", "turned", perm=[2, 0, 1]),
    ]
    for name in names:
        found += [node("Gather", f"turned {name}", f"is_{name}"), node("NonZero", f"is_{name}", f"at_{name}")]
    return found


def split(*names: str) -> list[onnx.NodeProto]:
    """What ONNX Runtime makes of several Gathers."""
    pieces = [f"piece{k}" for k in range(6)]
    found = [*one_hot(), node("Split", "turned each", " ".join(pieces), axis=0)]
    for name in names:
        piece = pieces[int(PICKED[name])]
        found += [node("Squeeze", f"{piece} zero", f"is_{name}"), node("NonZero", f"is_{name}", f"at_{name}")]
    return found


def halved(*names: str) -> list[onnx.NodeProto]:
    found = [*one_hot(), node("Split", "turned halves", "low high", axis=-3)]
    for name in names:
        half, place = ("low", name) if PICKED[name] < 3 else ("high", f"{name}_less_3")
        found += [
            node("Gather", f"{half} {place}", f"is_{name}"),
            node("NonZero", f"is_{name}", f"at_{name}"),
        ]
    return found


def sliced(*names: str) -> list[onnx.NodeProto]:
    found = one_hot()
    for name in names:
        found += [
            node("Slice", f"turned from_{name} to_{name} first", f"is_{name}"),
            node("NonZero", f"is_{name}", f"at_{name}"),
        ]
    return found


FORMS = {
    "Equal": compared, "OneHot": one_hot, "Equal, all at once": spread, "OneHot, split": split,
    "OneHot, halved": halved, "OneHot, sliced": sliced,
}  # fmt: skip
MORE = {
    "each": [1] * 6, "halves": [3, 3], "zero": [0], "first": [-3], "from_two": [2], "to_two": [3],
    "from_three": [-3], "to_three": [-2], "from_four": [4], "to_four": [5],
    "three_less_3": np.int64(0), "four_less_3": np.int64(1),
    "depth": [6], "values": np.array([0, 1], dtype=np.int64), "last": [-1], "experts": list(range(6)),
}  # fmt: skip


def facts(shapes: ModelShapes) -> set[Expr]:
    return set(shapes.domain.inequalities)


def counts(shapes: ModelShapes) -> list[str]:
    return [u.symbol for u in shapes.unknowns if u.op == "NonZero"]


@pytest.mark.parametrize("form", FORMS)
def test_experts_share_the_tokens(form: str) -> None:
    made = graph(
        [TOPK, *FORMS[form]("two", "three", "four")], [X], "at_two at_three at_four", **PICKED, **MORE
    )
    shapes = infer(made)
    a, b, c = counts(shapes)
    assert {parse(f"2*t - {a} - {b} - {c}"), *(parse(f"t - {u}") for u in (a, b, c))} == facts(shapes)
    session = ort.InferenceSession(model(made).SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    for t in (1, 2, 9):
        found = session.run(None, {"x": rng.random((t, 6)).astype(np.float32)})
        sizes = {"t": t, **{u: f.shape[1] for u, f in zip((a, b, c), found, strict=True)}}
        assert all(fact.evaluate(sizes) >= 0 for fact in shapes.domain.inequalities)
    skewed = np.zeros((4, 6), dtype=np.float32)
    skewed[:, 2:4] = 1
    assert [f.shape[1] for f in session.run(None, {"x": skewed})] == [4, 4, 0]  # the bounds are met


def test_elements_that_may_be_equal_are_only_shared() -> None:
    shapes = infer(graph(compared("two", "three", source="p"), [POSITIONS], "at_two at_three", **PICKED))
    a, b = counts(shapes)
    assert facts(shapes) == {parse(f"2*t - {a} - {b}"), parse(f"2*t - {a}"), parse(f"2*t - {b}")}


def test_one_value_is_counted_once() -> None:
    nodes = [
        TOPK,
        *compared("two", "three"),
        node("Equal", "again chosen", "same"),
        node("NonZero", "same", "y"),
    ]
    shapes = infer(graph(nodes, [X], "at_two at_three y", **PICKED, again=np.int64(2)))
    assert texts(shapes, "y") == texts(shapes, "at_two")
    assert len(counts(shapes)) == 2


@pytest.mark.parametrize(
    "nodes",
    [
        # Masks of two tensors.
        [
            *compared("two", source="p"),
            node("Equal", "q three", "is_three"),
            node("NonZero", "is_three", "at_three"),
        ],
        # A size in place of a constant: the two may be equal.
        [
            *compared("two", source="p"),
            node("Equal", "p size", "is_three"),
            node("NonZero", "is_three", "at_three"),
        ],
        # An element counts for several positions of what it is compared with.
        [
            node("Equal", "p pair", "both"),
            node("Gather", "both two", "is_two", axis=1),
            node("NonZero", "is_two", "at_two"),
            node("Gather", "both three", "is_three", axis=1),
            node("NonZero", "is_three", "at_three"),
        ],
        # Other rows of the same one-hot tensor, not other values.
        [
            node("OneHot", "p depth values", "hot", axis=-1),
            node("Gather", "hot two", "is_two", axis=0),
            node("NonZero", "is_two", "at_two"),
            node("Gather", "hot three", "is_three", axis=0),
            node("NonZero", "is_three", "at_three"),
        ],
        # Set where they differ.
        [
            node("OneHot", "p depth turned", "hot", axis=0),
            node("Gather", "hot two", "is_two", axis=0),
            node("NonZero", "is_two", "at_two"),
            node("Gather", "hot three", "is_three", axis=0),
            node("NonZero", "is_three", "at_three"),
        ],
        # Two positions of a one-hot tensor at once, which are the same two.
        [
            node("OneHot", "p depth values", "hot", axis=0),
            node("Split", "hot", "is_one is_two is_three", axis=0, num_outputs=3),
            node("NonZero", "is_two", "at_two"),
            node("Slice", "hot from_two to_four", "is_both"),
            node("NonZero", "is_both", "at_three"),
        ],
        # Repeated before they are counted.
        [
            node("Equal", "p two", "a"),
            node("Expand", "a twice", "is_two"),
            node("NonZero", "is_two", "at_two"),
            node("Equal", "p three", "b"),
            node("Expand", "b twice", "is_three"),
            node("NonZero", "is_three", "at_three"),
        ],
    ],
    ids=["two tensors", "sizes", "spread", "rows", "off", "pairs", "repeated"],
)
def test_other_masks_share_nothing(nodes: list[onnx.NodeProto]) -> None:
    inputs = [value("p", INT64, ["t", 4]), value("q", INT64, ["t", 4])]
    made = graph(
        [node("Shape", "q", "dims", start=0, end=1), node("Squeeze", "dims", "size"), *nodes],
        inputs, "at_two at_three", **PICKED, pair=[0, 1, 2, 2], depth=[6], turned=[1, 0], values=[0, 1],
        twice=[3, 1, 1], from_two=[2], to_four=[4],
    )  # fmt: skip
    shapes = infer(made)
    a, b = counts(shapes)
    assert not any({a, b} <= fact.symbols() for fact in shapes.domain.inequalities)


def test_branches_forget_what_was_tried() -> None:
    """A Loop's body is inferred more than once; its masks are listed once."""
    body = graph(
        [
            TOPK, *compared("two", "three"), node("Identity", "go", "go_on"),
            node("Gather", "at_two first", "r"),
            node("ReduceSum", "r", "s", keepdims=0), node("Add", "s n", "m"),
        ],
        [value("i", INT64, []), value("go", BOOL, []), value("n", INT64, [])],
        "go_on m", **PICKED, first=np.int64(0),
    )  # fmt: skip
    made = graph([node("Loop", "trips yes zero", "out", body=body)], [X, value("trips", INT64, [])], "out",
                 yes=np.array(True), zero=np.int64(0))  # fmt: skip
    shapes = infer(made)
    a, b = counts(shapes)
    assert facts(shapes) == {parse(f"2*t - {a} - {b}"), parse(f"t - {a}"), parse(f"t - {b}")}
