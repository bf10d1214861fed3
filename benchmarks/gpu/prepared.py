"""Models that are planned before a GPU is there, and shapes at which they are looked at.

Planning takes longer than a short loan of a machine allows, so `prepare` writes models without their larger
weights: all of them refer to the start of one file, `weights.bin`, which `fill` makes of random numbers on
the spot. They are planned for CUDA at level none: no step of it needs a device.

    transformer   training step of a causal transformer: its order, by session or by file; levels
    unet          diffusion U-Net, inference: convolutions, whose workspace no formula knows
    paper         the paper's training step (corpus), or a transformer of the same kind
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from math import prod
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from benchmarks.weights import CORPUS
from onnx_symmem.errors import ModelFileError
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.text import parse
from onnx_symmem.graph.load import external_entry, load_model
from onnx_symmem.order.limits import within_budget
from onnx_symmem.remat.levels import LevelOptions
from onnx_symmem.rewrite.version_record import versions_of
from onnx_symmem.run.optimized import OptimizeOptions
from onnx_symmem.run.pipeline import optimize_model
from onnx_symmem.run.several import LevelWish
from onnx_symmem.shapes.engine import infer_shapes

__all__ = ["PREPARED", "Prepared", "fill", "level_peaks", "prepare", "read_prepared"]

PREPARED = Path("build", "gpu_check")
WEIGHTS = "weights.bin"
_MANIFEST = "prepared.json"
_SMALLEST = 1024  # bytes; smaller tensors stay in the file
_DEVIATION = 0.02
_LEVELS = 3
_BLOCK = 1 << 22  # random numbers drawn; the file repeats them


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model by name: `files` by variant (original, planned, anchors, ...), shapes from small to large."""

    name: str
    about: str
    shapes: tuple[Mapping[str, int], ...]
    files: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def path(self, folder: Path, variant: str) -> Path:
        """The file of a variant; ModelFileError where there is none."""
        if variant not in self.files:
            raise ModelFileError(f"{self.name}: no variant '{variant}' was prepared; {'; '.join(self.notes)}")
        return folder / self.files[variant]


@dataclass(frozen=True, slots=True)
class _Plan:
    """How a model is built and planned; `seconds` of search."""

    name: str
    about: str
    build: Callable[[], onnx.ModelProto]
    domain: Mapping[str, tuple[int, int | None]]
    shapes: tuple[Mapping[str, int], ...]
    variants: tuple[str, ...] = ("planned", "anchors", "levels", "offload")
    seconds: float = 5.0


def _plans(small: bool, corpus: Path) -> Iterator[_Plan]:
    from models.unet import build_unet

    text = {"batch": (1, 64), "seq": (1, 2048)}
    if small:
        yield _Plan(
            "transformer", "2 layers of width 32", _transformer(16, 32, 2, 2, 10), text,
            tuple({"batch": 2, "seq": s} for s in (5, 16, 24)), seconds=0.0,
        )  # fmt: skip
        yield _Plan(
            "unet", "width 8", lambda: build_unet(width=8, levels=1, blocks=1), {},
            tuple({"batch": b, "height": 8 * b, "width": 8 * b} for b in (1, 2)), ("planned",), 0.0,
        )  # fmt: skip
        yield _Plan(
            "paper", "1 layer of width 32 in its place", _transformer(16, 32, 1, 2, 10), text,
            ({"batch": 2, "seq": 16},), ("planned", "levels"), 0.0,
        )  # fmt: skip
        return
    yield _Plan(
        "transformer", "6 layers of width 512", _transformer(512, 512, 6, 8, 1000), text,
        ({"batch": 2, "seq": 128}, {"batch": 8, "seq": 512}, {"batch": 16, "seq": 1024}),
    )  # fmt: skip
    yield _Plan(
        "unet", "width 64", lambda: build_unet(width=64), {},
        tuple({"batch": b, "height": s, "width": s} for b, s in ((1, 64), (4, 64), (8, 128))), ("planned",),
    )  # fmt: skip
    lengths = ({"batch": 14, "seq": 1024},)
    ranges = {"batch": (1, 32), "seq": (16, 4096)}
    paper = corpus / "llama2_1b_paper_train.onnx"
    if paper.is_file():
        about = "the paper's model: Llama 2 cut to 4 layers, 1.07 billion parameters, float32"
        yield _Plan(
            "paper", about, lambda: onnx.load(paper, load_external_data=False), ranges, lengths,
            ("planned", "levels"), 3.0,
        )  # fmt: skip
        return
    yield _Plan(
        "paper", "in its place, as the corpus is not there: 4 layers of width 2048, float32",
        _transformer(2048, 2048, 4, 16, 8000), ranges, lengths, ("planned", "levels"), 3.0,
    )  # fmt: skip


def _transformer(
    features: int, width: int, layers: int, heads: int, classes: int
) -> Callable[[], onnx.ModelProto]:
    from models.transformer_train import build_transformer_train

    return lambda: build_transformer_train(features, width, layers, heads, classes)


def prepare(
    folder: Path, small: bool = False, corpus: Path = CORPUS, tell: Callable[[str], None] = lambda _: None
) -> tuple[Prepared, ...]:
    """Build, plan and write all models into a folder; a plan that fails is a note of its model."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for plan in _plans(small, corpus):
        tell(f"{plan.name}: {plan.about}")
        model = _hollow(plan.build())
        original = folder / f"{plan.name}.original.onnx"
        original.write_bytes(model.SerializeToString(deterministic=True))
        _reserve(folder, model)
        files, notes = {"original": original.name}, []
        for variant in plan.variants:
            target = folder / f"{plan.name}.{variant}.onnx"
            try:
                optimize_model(original, target, plan.domain, _options(plan, variant))
                files[variant] = target.name
            except Exception as error:
                notes.append(f"{variant}: {type(error).__name__}: {error}")
                tell(f"{plan.name}: {notes[-1]}")
        found.append(Prepared(plan.name, plan.about, plan.shapes, files, tuple(notes)))
    (folder / WEIGHTS).unlink(missing_ok=True)
    document = {"small": small, "models": [asdict(p) for p in found]}
    (folder / _MANIFEST).write_text(json.dumps(document, indent=1) + "\n")
    return tuple(found)


def _options(plan: _Plan, variant: str) -> OptimizeOptions:
    search = within_budget(plan.seconds)
    options = OptimizeOptions("cuda", "none", verify=False, search=search, dispatch=False)
    if variant == "planned":
        return options
    if variant == "anchors":
        return replace(options, delivery="anchors")
    levels = LevelOptions(_LEVELS)
    if not plan.seconds:
        levels = replace(levels, levels=1)
    away = variant == "offload"
    levels = replace(levels, limits=replace(levels.limits, recompute=not away, offload=away))
    if away:
        levels = replace(levels, max_slowdown=20.0)  # whether it pays is what the check finds out
    return replace(options, levels=LevelWish(None, ("activations",), 0, levels))


def _hollow(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its larger float weights at the start of the one file."""
    for tensor in model.graph.initializer:
        size = 4 * prod(tensor.dims)
        if tensor.data_type != TensorProto.FLOAT or (size < _SMALLEST and external_entry(tensor) is None):
            continue
        for name in ("raw_data", "float_data", "external_data"):
            tensor.ClearField(name)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", WEIGHTS), ("offset", 0), ("length", size)):
            tensor.external_data.add(key=key, value=str(value))
    return model


def _longest(model: onnx.ModelProto) -> int:
    entries = [external_entry(t) for t in model.graph.initializer]
    return max((entry[2] or 0 for entry in entries if entry is not None), default=0)


def _reserve(folder: Path, model: onnx.ModelProto) -> None:
    """A file as long as the largest weight, sparse: planning asks for no number in it."""
    path = folder / WEIGHTS
    size = max(_longest(model), path.stat().st_size if path.exists() else 0)
    with path.open("ab") as file:
        file.truncate(size)


def read_prepared(folder: Path) -> dict[str, Prepared]:
    """The models of a folder by name."""
    try:
        document = json.loads((folder / _MANIFEST).read_text())
    except OSError as error:
        raise ModelFileError(
            f"{folder}: no models were prepared there ({error.strerror}); run --prepare {folder}"
        ) from error
    models = (Prepared(**entry) for entry in document["models"])
    return {m.name: replace(m, shapes=tuple(m.shapes), notes=tuple(m.notes)) for m in models}


def fill(folder: Path, model: Prepared) -> None:
    """Make the weights of a model, where they are not there: random numbers of the deviation that suits."""
    proto = onnx.load(folder / model.files["original"], load_external_data=False)
    path, size = folder / WEIGHTS, _longest(proto)
    if path.exists() and path.stat().st_size >= size:
        return
    block = (
        np.random.default_rng(0).standard_normal(min(_BLOCK, size // 4 + 1), dtype=np.float32) * _DEVIATION
    )
    data = block.astype(np.float32).tobytes()
    with path.open("wb") as file:
        for start in range(0, size, len(data)):
            file.write(data[: size - start])


def level_peaks(path: Path, shape: Mapping[str, int]) -> tuple[int, ...]:
    """What each level of a file needs at a shape, by the formulas that its guard compares."""
    domain, levels = _formulas(path)
    known = domain.completed(shape)
    return tuple(max(formula.evaluate(known) for formula in formulas) for formulas in levels)


@lru_cache
def _formulas(path: Path) -> tuple[Domain, tuple[tuple[Expr, ...], ...]]:
    model = load_model(path)
    about = versions_of(model.proto) or {"versions": ()}
    levels = tuple(tuple(map(parse, version["peak"])) for version in about["versions"])
    return infer_shapes(model.view()).domain, levels
