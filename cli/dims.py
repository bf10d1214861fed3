"""`--dim`: what is known of symbols, from texts and from files.

    batch=1..64 | batch=8 | seq=1.. | seq%8            a range, a size, a divisor; the last may be added
    @dims.toml | @dims.yaml | @pyproject.toml          a table `dim` of names with these forms

In a file a name stands left and the rest right: `batch = "1..64"`, `seq = "1..2048%8"`, `past = "%16"`,
`heads = 8`, `width = [64, 1024]`. In pyproject.toml the table is `tool.onnx-symmem.dim`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from onnx_symmem.errors import DomainError, UsageError

__all__ = ["QUOTED", "DimRange", "matched_name", "parse_dims"]

# Eighteen digits fit an int64, the type of every dim in ONNX.
QUOTED = r"""(?: "(?P<quoted> (?: [^"] | "" )+ )" )"""
"""A name in quotes, for a verbose pattern whose other group is `name`; see `matched_name`."""

_DIM = re.compile(
    rf"""\s* (?: {QUOTED} | (?P<name>[^=%"]+?) ) \s*
        (?: = \s* (?P<lo>[0-9]{{1,18}}) \s* (?P<open>\.\. \s* (?P<hi>[0-9]{{1,18}})? )? \s* )?
        (?: %  \s* (?P<divisor>[0-9]{{1,18}}) \s* )?""",
    re.VERBOSE,
)
_DIM_FORMS = "NAME=LO..HI, NAME=LO.., NAME=VALUE or NAME%K"


class DimRange(NamedTuple):
    """What is said of one symbol: lo <= symbol <= hi (None: no upper end), and divisor divides it."""

    name: str
    lo: int
    hi: int | None
    divisor: int


def parse_dims(texts: Iterable[str]) -> tuple[DimRange, ...]:
    """Read `--dim` texts, `@FILE` too; each symbol once, by first mention, range and divisor joined."""
    ranges: dict[str, tuple[int, int | None]] = {}
    divisors: dict[str, int] = {}
    order: dict[str, None] = {}
    for text in _with_files(texts):
        match = _DIM.fullmatch(text)
        if match is None or (match["lo"] is None and match["divisor"] is None):
            raise DomainError(f"--dim {text!r} is not understood; expected {_DIM_FORMS}")
        name = matched_name(match)
        order[name] = None
        if match["lo"] is not None:
            if name in ranges:
                raise DomainError(f"--dim {text!r}: the range of {name!r} is given twice")
            ranges[name] = _range_of(text, match)
        if match["divisor"] is not None:
            if name in divisors:
                raise DomainError(f"--dim {text!r}: the divisor of {name!r} is given twice")
            divisors[name] = int(match["divisor"])
            if divisors[name] == 0:
                raise DomainError(f"--dim {text!r}: the divisor must be at least 1")
    dims = tuple(DimRange(name, *ranges.get(name, (1, None)), divisors.get(name, 1)) for name in order)
    for dim in dims:
        if dim.hi is not None and dim.hi // dim.divisor * dim.divisor < dim.lo:
            raise DomainError(f"--dim: no multiple of {dim.divisor} lies in {dim.name}={dim.lo}..{dim.hi}")
    return dims


def matched_name(match: re.Match[str]) -> str:
    """The name that a pattern with `QUOTED` has found."""
    quoted: str | None = match["quoted"]
    return match["name"] if quoted is None else quoted.replace('""', '"')


def _range_of(text: str, match: re.Match[str]) -> tuple[int, int | None]:
    lo = int(match["lo"])
    if match["open"] is None:
        return lo, lo
    if match["hi"] is None:
        return lo, None
    hi = int(match["hi"])
    if hi < lo:
        raise DomainError(f"--dim {text!r}: the range is upside down, {lo} is above {hi}")
    return lo, hi


def _with_files(texts: Iterable[str]) -> Iterator[str]:
    """The texts, with those of files put in."""
    for text in texts:
        if text.startswith("@"):
            yield from _file_texts(Path(text[1:]))
        else:
            yield text


def _file_texts(path: Path) -> Iterator[str]:
    document = _document(path)
    keys = ("tool", "onnx-symmem", "dim") if path.name == "pyproject.toml" else ("dim",)
    for key in keys:
        document = document.get(key) if isinstance(document, Mapping) else None
    if not isinstance(document, Mapping):
        raise UsageError(f"{path}: expected a table '{'.'.join(keys)}' with a range per dim")
    for name, said in document.items():
        spec = _spec(said)
        if spec is None:
            raise DomainError(f"{path}: dim '{name}' = {said!r}: expected LO..HI, %K, a size, or [LO, HI]")
        yield f"{_quoted(str(name))}{spec}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _spec(said: Any) -> str | None:
    """What a file says of a dim, as it follows the name in `--dim`."""
    if isinstance(said, int) and not isinstance(said, bool):
        return f"={said}"
    if isinstance(said, list) and len(said) == 2 and all(type(end) is int for end in said):
        return f"={said[0]}..{said[1]}"
    if isinstance(said, str):
        return said.strip() if said.strip().startswith("%") else f"={said.strip()}"
    return None


def _document(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--dim @{path}: cannot be read: {_reason(error)}") from error
    if path.suffix == ".toml":
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"--dim @{path}: not TOML: {error}") from error
    if path.suffix not in (".yaml", ".yml"):
        raise UsageError(f"--dim @{path}: expected a .toml or .yaml file")
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"--dim @{path}: not YAML: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())
