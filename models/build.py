"""The registry of models, and the command that writes one.

`python -m models.build NAME -o OUT [KEY=VALUE ...]`
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx

from models.decoder import build_decoder
from models.mlp_train import build_mlp_train
from models.randwire import build_randwire
from models.transformer_train import build_transformer_train
from models.unet import build_unet

__all__ = ["MODELS", "Recipe", "build", "main"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """A model that can be built: its builder, shapes at which it runs, and how integer inputs are drawn.

    `shapes` go from small and odd to one at which memory matters. `ranges` gives [low, high) of the inputs
    that are indices; all others are standard normal.
    """

    builder: Callable[..., onnx.ModelProto]
    shapes: tuple[Mapping[str, int], ...]
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """First line of the builder's module."""
        module = inspect.getmodule(self.builder)
        return (module.__doc__ or "").partition("\n")[0] if module else ""

    @property
    def options(self) -> dict[str, int]:
        """Options of the builder and their defaults."""
        return {name: p.default for name, p in inspect.signature(self.builder).parameters.items()}


MODELS: Mapping[str, Recipe] = {
    "decoder": Recipe(
        build_decoder,
        (
            {"batch": 1, "dec_seq": 1, "enc_seq": 1},
            {"batch": 2, "dec_seq": 5, "enc_seq": 30},
            {"batch": 4, "dec_seq": 64, "enc_seq": 1500},
        ),
        {"decoder_ids": (0, 1000)},
    ),
    "unet": Recipe(
        build_unet,
        (
            {"batch": 1, "height": 7, "width": 5},
            {"batch": 2, "height": 23, "width": 40},
            {"batch": 2, "height": 64, "width": 64},
        ),
        {"timestep": (0, 1000)},
    ),
    "randwire": Recipe(
        build_randwire,
        (
            {"batch": 1, "height": 33, "width": 47},
            {"batch": 2, "height": 64, "width": 64},
            {"batch": 4, "height": 224, "width": 224},
        ),
    ),
    "mlp_train": Recipe(build_mlp_train, ({"batch": 1}, {"batch": 33}, {"batch": 4096}), {"labels": (0, 10)}),
    "transformer_train": Recipe(
        build_transformer_train,
        ({"batch": 1, "seq": 1}, {"batch": 3, "seq": 17}, {"batch": 4, "seq": 256}),
        {"labels": (0, 100)},
    ),
}


def build(name: str, **options: Any) -> onnx.ModelProto:
    """Build a model of the registry."""
    return MODELS[name].builder(**options)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write one model and say what it is."""
    parser = argparse.ArgumentParser(
        prog="python -m models.build",
        description="Write a small real model with symbolic dims.",
        epilog="\n".join(
            f"{name:18}{recipe.summary}\n{'':18}"
            + " ".join(f"{k}={int(v)}" for k, v in recipe.options.items())
            for name, recipe in MODELS.items()
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=MODELS, metavar="NAME", help="one of the models below")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="OUT", help="file to write")
    parser.add_argument("options", nargs="*", metavar="KEY=VALUE", help="builder options, whole numbers")
    given = parser.parse_intermixed_args(arguments)

    known = MODELS[given.name].options
    options: dict[str, int] = {}
    for text in given.options:
        key, _, value = text.partition("=")
        if key not in known or not value.isdecimal():
            parser.error(f"{text}: expected KEY=WHOLE NUMBER, KEY one of {', '.join(known)}")
        options[key] = int(value)

    model = build(given.name, **options)
    data = model.SerializeToString(deterministic=True)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    partial = given.output.with_name(given.output.name + ".partial")
    partial.write_bytes(data)
    partial.replace(given.output)
    dims = [d for value in model.graph.input for d in value.type.tensor_type.shape.dim]
    symbols = dict.fromkeys(d.dim_param for d in dims if d.dim_param)
    size = f"{len(model.graph.node)} nodes, {len(data) / 1e6:.1f} MB"
    print(f"{given.output}: {size}, symbols {', '.join(symbols)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
