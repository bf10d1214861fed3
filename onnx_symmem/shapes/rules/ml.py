"""Classic machine learning, domain ai.onnx.ml: one row per example, columns from the attributes."""

from __future__ import annotations

from typing import Any

from onnx import TensorProto

from onnx_symmem.expr.expression import ONE, Expr
from onnx_symmem.shapes.context import NodeContext, Unknown, Unresolved
from onnx_symmem.shapes.registry import ML, rule
from onnx_symmem.shapes.states import SequenceState, State

__all__: list[str] = []

INT64, FLOAT, STRING = int(TensorProto.INT64), int(TensorProto.FLOAT), int(TensorProto.STRING)


def _rows(ctx: NodeContext) -> Expr:
    """Number of examples; a vector is one example."""
    dims = ctx.need(0)
    return dims[0] if len(dims) > 1 else ONE


def _labels(ctx: NodeContext, ints: str, strings: str) -> tuple[int, int]:
    """(number of labels, element type) of a classifier."""
    names: Any = ctx.attr(strings, ())
    numbers: Any = ctx.attr(ints, ())
    return (len(names), STRING) if names else (len(numbers), INT64)


@rule("Binarizer", domain=ML)
def _same(ctx: NodeContext) -> None:
    ctx.set(0, ctx.need(0), ctx.elem(0))


@rule("Imputer", domain=ML)
def _imputer(ctx: NodeContext) -> None:
    ctx.set(0, ctx.need(0), ctx.elem(0))


@rule("Normalizer", "Scaler", domain=ML)
def _to_float(ctx: NodeContext) -> None:
    ctx.set(0, ctx.need(0), FLOAT)


@rule("LabelEncoder", domain=ML)
def _label_encoder(ctx: NodeContext) -> None:
    elem = 0
    for name, kind in (("values_strings", STRING), ("values_int64s", INT64), ("values_floats", FLOAT)):
        if name in ctx.node.attributes:
            elem = kind
    if "values_tensor" in ctx.node.attributes:
        elem = ctx.attr("values_tensor").data_type
    if "classes_strings" in ctx.node.attributes:
        elem = INT64 if ctx.elem(0) == STRING else STRING
    ctx.set(0, ctx.need(0), elem or None)


@rule("CategoryMapper", domain=ML)
def _category_mapper(ctx: NodeContext) -> None:
    ctx.set(0, ctx.need(0), INT64 if ctx.elem(0) == STRING else STRING)


@rule("OneHotEncoder", domain=ML)
def _one_hot_encoder(ctx: NodeContext) -> None:
    count, _ = _labels(ctx, "cats_int64s", "cats_strings")
    ctx.set(0, (*ctx.need(0), count), FLOAT)


@rule("FeatureVectorizer", domain=ML)
def _feature_vectorizer(ctx: NodeContext) -> None:
    ctx.set(0, (_rows(ctx), sum(ctx.attr("inputdimensions", ()))), FLOAT)


@rule("DictVectorizer", domain=ML)
def _dict_vectorizer(ctx: NodeContext) -> None:
    count, _ = _labels(ctx, "int64_vocabulary", "string_vocabulary")
    ctx.set(0, (1, count))


@rule("CastMap", domain=ML)
def _cast_map(ctx: NodeContext) -> None:
    kinds = {"TO_FLOAT": FLOAT, "TO_INT64": INT64, "TO_STRING": STRING}
    size = int(ctx.attr("max_map", 1)) if ctx.attr("map_form", "DENSE") == "SPARSE" else None
    dim = Unknown("the size of the map is in the data") if size is None else size
    ctx.set(0, (1, dim), kinds.get(ctx.attr("cast_to", "TO_FLOAT"), FLOAT))


@rule("ZipMap", domain=ML)
def _zip_map(ctx: NodeContext) -> None:
    ctx.set_state(0, State(None, 0, None, SequenceState(0, None, _rows(ctx))))


@rule("TreeEnsemble", domain=ML)
def _tree_ensemble(ctx: NodeContext) -> None:
    ctx.set(0, (_rows(ctx), int(ctx.attr("n_targets", 1))))


@rule("TreeEnsembleRegressor", domain=ML)
def _tree_regressor(ctx: NodeContext) -> None:
    ctx.set(0, (_rows(ctx), int(ctx.attr("n_targets", 1))), FLOAT)


@rule("LinearRegressor", domain=ML)
def _linear_regressor(ctx: NodeContext) -> None:
    ctx.set(0, (_rows(ctx), int(ctx.attr("targets", 1))), FLOAT)


@rule("SVMRegressor", domain=ML)
def _svm_regressor(ctx: NodeContext) -> None:
    ctx.set(0, (_rows(ctx), 1), FLOAT)


@rule("TreeEnsembleClassifier", domain=ML)
def _tree_classifier(ctx: NodeContext) -> None:
    count, elem = _labels(ctx, "classlabels_int64s", "classlabels_strings")
    _classifier(ctx, count, elem)


@rule("LinearClassifier", domain=ML)
def _linear_classifier(ctx: NodeContext) -> None:
    count, elem = _labels(ctx, "classlabels_ints", "classlabels_strings")
    intercepts = len(ctx.attr("intercepts", ()))
    # One score of a two-class model is written as two.
    _classifier(ctx, 2 if count == 2 and intercepts == 1 else intercepts or count, elem)


@rule("SVMClassifier", domain=ML)
def _svm_classifier(ctx: NodeContext) -> None:
    count, elem = _labels(ctx, "classlabels_ints", "classlabels_strings")
    if ctx.attr("vectors_per_class") and not ctx.attr("prob_a"):
        # Without probabilities there is a score per pair of classes, and two for two classes.
        count = count * (count - 1) // 2 if count > 2 else 2
    _classifier(ctx, count, elem)


def _classifier(ctx: NodeContext, scores: int, elem: int) -> None:
    if not scores:
        raise Unresolved("the classifier has no labels")
    rows = _rows(ctx)
    ctx.set(0, (rows,), elem)
    ctx.set(1, (rows, scores), FLOAT)
