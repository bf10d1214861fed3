"""Options that several verbs share: how they are spelled, and how their texts become plain data.

    --dim  batch=1..64 | batch=8 | seq=1.. | seq%8     what is known of a symbol; both forms may be given
    --dim  @dims.toml                                  the same from a file, see dims.py
    --at   batch=2,seq=64                              a value for every symbol, i.e. one shape
    --input NAME=SPEC                                  how to fill one graph input
    --budget 24GiB | 24GB | 25769803776                bytes; KiB is 1024, kB is 1000, and so on

A name that has `=`, `,` or `%` in it, or begins with `@`, stands in double quotes, `--at '"a,b"=2,seq=64'`,
and quotes in it are doubled.
Parsers raise one-line errors of `onnx_symmem.errors`. The model is not known here: whether a name exists is
for the verb to check.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any, TypeVar

import click
from onnx_symmem.cli.dims import QUOTED, DimRange, matched_name, parse_dims
from onnx_symmem.cli.model_path import ModelPath

from onnx_symmem.errors import DomainError, UsageError

__all__ = [
    "DimRange",
    "against_option",
    "at_option",
    "budget_options",
    "dim_option",
    "domain_spec",
    "ep_option",
    "input_option",
    "json_option",
    "model_argument",
    "models_argument",
    "ort_level_option",
    "parse_assignments",
    "parse_dims",
    "parse_names",
    "parse_shape",
    "parse_shapes",
    "parse_size",
    "shapes_option",
    "size_option",
]

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

# Eighteen digits fit an int64, the type of every dim in ONNX.
_VALUE = re.compile(
    rf"""\s* (?: {QUOTED} | (?P<name>[^=,"]+?) ) \s* = \s* (?P<value>[0-9]{{1,18}}) \s*""", re.VERBOSE
)
_NAME = re.compile(rf"""\s* (?: {QUOTED} | (?P<name>[^,"]+?) ) \s*""", re.VERBOSE)
_PART = re.compile(r"""(?: "[^"]*" | [^,] )*""", re.VERBOSE)  # up to a comma outside quotes
_ASSIGNED = re.compile(
    rf"""\s* (?: {QUOTED} | (?P<name>[^="]+?) ) \s* = \s* (?P<spec>.*\S) \s*""", re.VERBOSE
)
_SIZE = re.compile(r"\s*(?P<number>[0-9]{1,18}(?:\.[0-9]{1,9})?)\s*(?P<unit>[A-Za-z]*)\s*", re.ASCII)
_UNITS = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
}


# ------------------------------------------------------------------------------------------------ parsers


def parse_shape(text: str, option: str = "--at") -> dict[str, int]:
    """Read one text of `--at` or the named option, `batch=2,seq=64`, into a value per symbol."""
    shape: dict[str, int] = {}
    for part in _parts(text):
        match = _VALUE.fullmatch(part)
        if match is None:
            raise DomainError(
                f"{option} {text!r}: {part!r} is not understood; expected NAME=VALUE, VALUE >= 0"
            )
        name = matched_name(match)
        if name in shape:
            raise DomainError(f"{option} {text!r}: {name!r} is given twice")
        shape[name] = int(match["value"])
    return shape


def parse_names(text: str, option: str) -> tuple[str, ...]:
    """Read names with commas between them."""
    names = []
    for part in _parts(text):
        match = _NAME.fullmatch(part)
        if match is None:
            raise DomainError(f"{option} {text!r}: {part!r} is not understood; expected NAME or NAME,NAME")
        names.append(matched_name(match))
    return tuple(names)


def _parts(text: str) -> Iterator[str]:
    """A text divided at the commas that stand outside quotes."""
    at = 0
    while True:
        match = _PART.match(text, at)
        assert match is not None
        yield match[0]
        if match.end() == len(text):
            return
        at = match.end() + 1


def parse_shapes(texts: Iterable[str]) -> dict[str, int]:
    """Join several `--at` texts into one shape; no symbol may be given twice."""
    joined: dict[str, int] = {}
    for text in texts:
        for name, value in parse_shape(text).items():
            if name in joined:
                raise DomainError(f"--at {text!r}: {name!r} is given twice")
            joined[name] = value
    return joined


def parse_size(text: str, option: str = "--budget") -> int:
    """Read a number of bytes, with a unit or without; a fraction is rounded down to whole bytes."""
    match = _SIZE.fullmatch(text)
    unit = _UNITS.get((match["unit"] or "").lower()) if match else None
    if match is None or unit is None:
        raise UsageError(f"{option} {text!r} is not a size; expected e.g. 24GiB, 24GB or 25769803776")
    return int(Fraction(match["number"]) * unit)


def parse_assignments(option: str, texts: Iterable[str]) -> dict[str, str]:
    """Read `NAME=SPEC` texts of the named option; the first `=` outside quotes divides."""
    pairs: dict[str, str] = {}
    for text in texts:
        match = _ASSIGNED.fullmatch(text)
        if match is None:
            raise UsageError(f"{option} {text!r} is not understood; expected NAME=SPEC")
        name, spec = matched_name(match), match["spec"]
        if name in pairs:
            raise UsageError(f"{option} {text!r}: {name!r} is given twice")
        pairs[name] = spec
    return pairs


def domain_spec(dims: Iterable[DimRange]) -> dict[str, Any]:
    """What `--dim` says, as the Python API takes it."""
    from onnx_symmem.expr.domain import SymbolRange

    return {dim.name: SymbolRange(dim.lo, dim.hi, dim.divisor) for dim in dims}


# ------------------------------------------------------------------------------------------------ decorators


def _parsed(parse: Callable[[tuple[str, ...]], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    def callback(_ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> Any:
        return parse(value)

    return callback


def model_argument(name: str = "model") -> Callable[[_Decorated], _Decorated]:
    """Add a model file as an argument; the verb gets a `Path`. Whether it exists is for the loader to say."""

    def add(command: _Decorated) -> _Decorated:
        return click.argument(name, type=ModelPath(), metavar=name.upper())(command)

    return add


def models_argument(command: _Decorated) -> _Decorated:
    """Add several model files; the verb gets `models: tuple[Path, ...]`."""
    return click.argument("models", nargs=-1, required=True, type=ModelPath(), metavar="MODEL...")(command)


def against_option(words: str) -> Callable[[_Decorated], _Decorated]:
    """Add `--against`, another model file; the verb gets `against: Path | None`."""

    def add(command: _Decorated) -> _Decorated:
        return click.option("--against", type=ModelPath(), metavar="OTHER", help=words)(command)

    return add


def dim_option(command: _Decorated) -> _Decorated:
    """Add `--dim`, repeatable; the verb gets `dims: tuple[DimRange, ...]`."""
    return click.option(
        "--dim",
        "dims",
        multiple=True,
        metavar="NAME=LO..HI",
        callback=_parsed(parse_dims),
        help="Range of a symbolic dim: NAME=LO..HI, NAME=LO.., NAME=VALUE or NAME%K (a multiple of K), or "
        "@FILE with a table `dim` (.toml, .yaml, pyproject.toml); repeatable. Default 1 and up.",
    )(command)


def at_option(command: _Decorated) -> _Decorated:
    """Add `--at`, repeats joined into one shape; the verb gets `at: dict[str, int]`."""
    return click.option(
        "--at",
        "at",
        multiple=True,
        metavar="NAME=VALUE,...",
        callback=_parsed(parse_shapes),
        help="The shape to look at, e.g. batch=2,seq=64; repeatable, all are joined.",
    )(command)


def shapes_option(command: _Decorated) -> _Decorated:
    """Add `--at`, each a shape of its own; the verb gets `shapes: tuple[dict[str, int], ...]`."""
    return click.option(
        "--at",
        "shapes",
        multiple=True,
        metavar="NAME=VALUE,...",
        callback=_parsed(lambda texts: tuple(map(parse_shape, texts))),
        help="A shape to look at, e.g. batch=2,seq=64; repeatable, one shape each.",
    )(command)


def size_option(name: str, *, required: bool, words: str) -> Callable[[_Decorated], _Decorated]:
    """Add an option that takes a number of bytes; the verb gets an int, or None."""

    def parse(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
        return None if text is None else parse_size(text, name)

    def add(command: _Decorated) -> _Decorated:
        return click.option(name, required=required, metavar="SIZE", callback=parse, help=words)(command)

    return add


def budget_options(command: _Decorated) -> _Decorated:
    """Add `--count` and `--reserve`; the verb gets `counts: tuple[str, ...]` and `reserve: int`."""
    scopes = ("activations", "inputs", "weights")
    command = click.option(
        "--reserve",
        default="0",
        show_default=True,
        metavar="SIZE",
        callback=lambda _ctx, _param, text: parse_size(text, "--reserve"),
        help="Bytes kept free for what is not in the formulas: kernels' own memory, gaps of the arena.",
    )(command)
    return click.option(
        "--count",
        "counts",
        type=click.Choice(scopes),
        multiple=True,
        default=scopes,
        help="What a budget covers; repeatable. Default: all three. Outputs count as activations.",
    )(command)


def ep_option(command: _Decorated) -> _Decorated:
    """Add `--ep`; the verb gets `ep: str`."""
    return click.option(
        "--ep",
        type=click.Choice(["cpu", "cuda"]),
        default="cpu",
        show_default=True,
        help="Execution provider of ONNX Runtime.",
    )(command)


def ort_level_option(command: _Decorated) -> _Decorated:
    """Add `--ort-level`; the verb gets `ort_level: str`."""
    return click.option(
        "--ort-level",
        type=click.Choice(["none", "basic", "extended", "all"]),
        default="extended",
        show_default=True,
        help="Graph optimisations of ONNX Runtime that the model is to be run with. all: with convolutions "
        "laid out for this processor; the file is for such processors only.",
    )(command)


def json_option(command: _Decorated) -> _Decorated:
    """Add `--json`; the verb gets `as_json: bool`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")(command)


def input_option(command: _Decorated) -> _Decorated:
    """Add `--input`, repeatable; the verb gets `inputs: dict[str, str]`."""
    return click.option(
        "--input",
        "inputs",
        multiple=True,
        metavar="NAME=SPEC",
        callback=_parsed(lambda texts: parse_assignments("--input", texts)),
        help="How to fill a graph input: normal, ones, zeros, value:V, uniform:LO:HI, randint:LO:HI, "
        "arange:LO:HI, or FILE.npy; repeatable. Default: what the model's operators need.",
    )(command)
