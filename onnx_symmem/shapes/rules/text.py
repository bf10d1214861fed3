"""Text ops: strings in, strings or counts out."""

from __future__ import annotations

from onnx import TensorProto

from onnx_symmem.expr.expression import maximum
from onnx_symmem.shapes.context import NodeContext, Unknown
from onnx_symmem.shapes.registry import MICROSOFT, rule
from onnx_symmem.shapes.rules.elementwise import broadcast_inputs

__all__: list[str] = []


@rule("StringConcat")
def _concat(ctx: NodeContext) -> None:
    ctx.set(0, broadcast_inputs(ctx), TensorProto.STRING)


@rule("RegexFullMatch")
def _match(ctx: NodeContext) -> None:
    ctx.set(0, ctx.need(0), TensorProto.BOOL)


@rule("StringNormalizer")
def _normalize(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    if not ctx.attr("stopwords", ()):
        ctx.set(0, dims)
        return
    # One empty string stays where every word was removed.
    unknown = Unknown("stop words are removed from the data", maximum(dims[-1], 1), 1)
    ctx.set(0, (*dims[:-1], unknown))


@rule("StringSplit")
def _split(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    ctx.set(0, (*dims, Unknown("the number of parts depends on data")), TensorProto.STRING)
    ctx.set(1, dims, TensorProto.INT64)


@rule("Tokenizer", domain=MICROSOFT)
def _tokenize(ctx: NodeContext) -> None:
    """As many tokens per string as the string with the most of them has."""
    ctx.set(0, (*ctx.need(0), Unknown("the number of tokens depends on data")), TensorProto.STRING)


@rule("MurmurHash3", domain=MICROSOFT)
def _hash(ctx: NodeContext) -> None:
    kind = TensorProto.UINT32 if ctx.attr("positive", 1) else TensorProto.INT32
    ctx.set(0, ctx.need(0), kind)


@rule("WordConvEmbedding", domain=MICROSOFT)
def _embed_words(ctx: NodeContext) -> None:
    ctx.set(0, (ctx.need(0)[0], ctx.need(1)[0]), ctx.elem(1))


@rule("TfIdfVectorizer")
def _tfidf(ctx: NodeContext) -> None:
    dims = ctx.need(0)
    ctx.set(0, (*dims[:-1], max(ctx.attr("ngram_indexes", (0,))) + 1), TensorProto.FLOAT)
