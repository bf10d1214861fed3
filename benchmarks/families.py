"""The graphs that orders are compared on, by family and name.

corpus           real models, as ONNX Runtime optimises them where their weights can be made
cnn-training     training steps of the nine networks that the onnx package carries
wired            RandWire of several seeds, NASNet
encoder-decoder  transformers with cross attention, a U-Net
training         training steps of a perceptron and a transformer
series-parallel  random graphs whose sizes mix three symbols
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import onnx

from benchmarks.case import Case, case_of
from benchmarks.weights import CORPUS, FILLED, is_complete, prepare, read_cases
from models.build import MODELS
from models.encoder_decoder import build_encoder_decoder
from models.light_train import LIGHT_MODELS, build_light_train, is_fixed
from models.nasnet import build_nasnet
from models.randwire import build_randwire
from models.series_parallel import build_series_parallel
from onnx_symmem.expr.domain import SymbolRange
from onnx_symmem.graph.load import LoadedModel, load_model
from onnx_symmem.run.baseline import usable_baseline

__all__ = ["FAMILIES", "GraphSource", "graph_sources"]

FAMILIES = ("corpus", "cnn-training", "wired", "encoder-decoder", "training", "series-parallel")

_SEEDS = 8
_HALVINGS = 32  # the networks halve the image five times; other sizes do not fit everywhere


@dataclass(frozen=True, slots=True)
class GraphSource:
    """A graph by name: how to get it and the level of optimisation it has, and what is known of its dims."""

    name: str
    family: str
    load: Callable[[], tuple[LoadedModel, str]]
    ranges: Mapping[str, SymbolRange] = field(default_factory=dict)

    def case(self, width: tuple[int, int | None] = (1, None)) -> Case:
        """The graph as the schedulers see it."""
        model, level = self.load()
        return case_of(model, level, self.ranges, width)


def graph_sources(families: tuple[str, ...] = FAMILIES, corpus: Path = CORPUS) -> dict[str, GraphSource]:
    """All graphs of some families. A corpus that is not there has none."""
    found: list[GraphSource] = []
    for family in families:
        if family == "corpus":
            found += _corpus(corpus)
        else:
            found += (
                GraphSource(name, family, partial(_built, build), ranges)
                for name, build, ranges in _builders(family)
            )
    return {source.name: source for source in found}


def _built(build: Callable[[], onnx.ModelProto]) -> tuple[LoadedModel, str]:
    return load_model(build()), "none"


def _builders(
    family: str,
) -> list[tuple[str, Callable[[], onnx.ModelProto], Mapping[str, SymbolRange]]]:
    plain: dict[str, Callable[[], onnx.ModelProto]] = {}
    if family == "cnn-training":
        halved = {side: SymbolRange(_HALVINGS, None, _HALVINGS) for side in ("height", "width")}
        return [
            (f"{name}_train", partial(build_light_train, name), {} if is_fixed(name) else halved)
            for name in LIGHT_MODELS
        ]
    if family == "wired":
        plain = {f"randwire_{seed}": partial(build_randwire, seed=seed) for seed in range(3)}
        plain["nasnet"] = partial(build_nasnet, cells=2)
    elif family == "encoder-decoder":
        plain["encoder_decoder"] = partial(build_encoder_decoder, cache_first=False)
        plain["encoder_decoder_cached"] = partial(build_encoder_decoder, cache_first=True)
        plain |= {name: MODELS[name].builder for name in ("decoder", "unet")}
    elif family == "training":
        plain = {name: MODELS[name].builder for name in ("mlp_train", "transformer_train")}
    elif family == "series-parallel":
        plain = {
            f"series_parallel_{seed}": partial(build_series_parallel, seed=seed) for seed in range(_SEEDS)
        }
    else:
        raise ValueError(f"no family {family}; there are {', '.join(FAMILIES)}")
    return [(name, build, {}) for name, build in plain.items()]


def _corpus(corpus: Path) -> list[GraphSource]:
    if not (corpus / "cases.json").is_file():
        return []
    return [GraphSource(name, "corpus", partial(_optimised, corpus, name)) for name in read_cases(corpus)]


def _optimised(corpus: Path, name: str) -> tuple[LoadedModel, str]:
    """What ONNX Runtime makes of a model at level extended; without weights the model as it is."""
    prepare(corpus, FILLED, [name])
    path = FILLED / f"{name}.onnx"
    if not is_complete(path):
        return load_model(path), "none"
    with tempfile.TemporaryDirectory(prefix="onnx-symmem-") as folder:
        base, _ = usable_baseline(load_model(path), "extended", "cpu", Path(folder))
    return base, "extended"
