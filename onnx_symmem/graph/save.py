"""Model -> file, all or nothing: staged beside the target, moved into place only when committed."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto

from onnx_symmem.errors import ModelFileError, UsageError
from onnx_symmem.graph.load import external_entry, graphs_of

__all__ = ["StagedModel", "check_target"]

_CHUNK = 8 << 20  # bytes copied at a time; bounds the memory used for weights of any size
_MOST_INLINE = 1_900_000_000  # bytes; a protobuf ends at 2 GiB
_ALIGNMENT = 4096  # bytes; lets ONNX Runtime map the weights file


def check_target(out: Path, example: str = "model.onnx") -> None:
    """Raise UsageError where a file cannot be written to `out` (folder missing, is a folder)."""
    if not out.parent.is_dir():
        raise UsageError(f"{out}: the folder '{out.parent}' does not exist; create it first")
    if out.is_dir():
        raise UsageError(f"{out}: is a folder; expected a file name such as {out / example}")
    if "\\" in out.name:
        raise UsageError(f"{out}: a name with '\\' is a folder elsewhere; expected '/' between folders")
    if out.exists() and not out.is_file():
        raise UsageError(f"{out}: is not a regular file; expected a file name such as {example}")
    if not os.access(out.parent, os.W_OK):
        raise UsageError(f"{out}: the folder '{out.parent}' is not writable")


class StagedModel:
    """A model written beside its target under a temporary folder, to be checked and then committed.

    `path` is the staged file; it loads as it stands. External data of the proto (found in
    `source_folder`) is copied, file to file, into one data file called `<out>.data`; weights never pass
    through memory as a whole. With `inline` they go into the model file instead, unless it would exceed
    what a protobuf can hold; with `keep` the model goes on referring to its data where the target lies
    in `source_folder`, and nothing is copied. A data file of that name is replaced only if the model that
    is replaced refers to it, no other model beside does, and it is not `foreign` (files of other models,
    resolved); else another name is taken. `beside` are texts of further files, by what follows the model's
    name in theirs. `commit()` moves everything to the target, the model last, and where that breaks off puts
    back what was there; leaving the context without it removes everything that was written.
    """

    def __init__(
        self,
        proto: onnx.ModelProto,
        out: Path,
        source_folder: str | None,
        *,
        inline: bool = False,
        keep: bool = False,
        foreign: frozenset[Path] = frozenset(),
        beside: Mapping[str, str] | None = None,
    ) -> None:
        check_target(out)
        if out.is_symlink():  # a link stays a link: what it points to is replaced
            out = out.resolve()
        self.out = out
        try:
            self._folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".tmp", dir=out.parent))
        except OSError as error:
            raise UsageError(f"{out}: cannot be written ({error.strerror or error})") from None
        self.path = self._folder / out.name
        self._data = self._folder / _data_name(out, foreign)
        self._beside = [(self._folder / f"{out.name}{end}", text) for end, text in (beside or {}).items()]
        try:
            copy = onnx.ModelProto()
            copy.CopyFrom(proto)
            if keep and source_folder is not None and out.parent.resolve() == Path(source_folder).resolve():
                # Only from the folder itself do its data files load: neither links nor `..` are allowed.
                self.path = out.parent / f"{self._folder.name}.onnx"
            elif inline and source_folder is not None and _external_bytes(copy) < _MOST_INLINE:
                onnx.load_external_data_for_model(copy, source_folder)
            else:
                self._copy_external(copy, source_folder)
            self.path.write_bytes(copy.SerializeToString(deterministic=True))
            for file, text in self._beside:
                file.write_text(text, encoding="utf-8")
        except OSError as error:
            self._discard()
            raise UsageError(f"{out}: cannot be written ({error.strerror or error})") from error
        except BaseException:
            self._discard()
            raise

    def _copy_external(self, proto: onnx.ModelProto, source_folder: str | None) -> None:
        tensors = [t for g in graphs_of(proto.graph) for t in _tensors(g) if external_entry(t)]
        if not tensors:
            return
        if source_folder is None:
            raise UsageError(
                f"tensor '{tensors[0].name}' has external data but the model was given as an object; "
                "give its path, or load the weights first"
            )
        placed: dict[tuple[str, int, int | None], tuple[int, int]] = {}
        with self._data.open("wb") as sink:
            for tensor in tensors:
                entry = external_entry(tensor)
                if entry is None:
                    continue
                if entry not in placed:
                    sink.write(b"\0" * (-sink.tell() % _ALIGNMENT))
                    start = sink.tell()
                    _copy_range(Path(source_folder, entry[0]), entry[1], entry[2], sink)
                    placed[entry] = (start, sink.tell() - start)
                start, length = placed[entry]
                del tensor.external_data[:]
                for key, value in (("location", self._data.name), ("offset", start), ("length", length)):
                    tensor.external_data.add(key=key, value=str(value))

    def commit(self) -> tuple[Path, ...]:
        """Move the files to the target, replacing what is there; returns their paths.

        Two processes that write to one target take turns, so that a model has its own data.
        """
        others = [(file, self.out.parent / file.name) for file in (self._data, *(f for f, _ in self._beside))]
        moves = [(staged, target) for staged, target in (*others, (self.path, self.out)) if staged.exists()]
        with _turn(self.out.parent):
            new = [target for _, target in moves if not target.exists()]
            olds = [self._second_name(target, k) for k, (_, target) in enumerate(moves)]
            try:
                for staged, target in moves:
                    staged.replace(target)
            except BaseException:
                for (_, target), old in zip(moves, olds, strict=True):
                    if old is not None:
                        old.replace(target)
                    elif target in new:
                        target.unlink(missing_ok=True)
                raise
        self._discard()
        return tuple(target for _, target in moves)

    def _second_name(self, target: Path, number: int) -> Path | None:
        """A second name for what is at a target, under which it stays when it is replaced."""
        if not target.is_file():
            return None
        second = self._folder / f"{number}.old"
        try:
            os.link(target, second)
        except OSError:  # not every file system has links
            return None
        return second

    def _discard(self) -> None:
        self.path.unlink(missing_ok=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> StagedModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._discard()


def _data_name(out: Path, foreign: frozenset[Path]) -> str:
    """`<out>.data`, or with a number where that belongs to another model."""
    own: set[str] = set()
    if out.is_file():
        replaced = onnx.ModelProto()
        with contextlib.suppress(DecodeError):
            replaced.ParseFromString(out.read_bytes())
        entries = (external_entry(t) for g in graphs_of(replaced.graph) for t in _tensors(g))
        own = {entry[0] for entry in entries if entry is not None}
    for k in itertools.count(1):
        name = f"{out.name}.data" if k == 1 else f"{out.name}.{k}.data"
        path = out.parent / name
        mine = name in own and path.resolve() not in foreign
        if not path.exists() or (mine and not _named_beside(out, name)):
            return name
    raise AssertionError


def _named_beside(out: Path, name: str) -> bool:
    """Whether another model in the folder speaks of a data file: a copy of the model that is replaced."""
    text = onnx.StringStringEntryProto(value=name).SerializeToString()  # with its length
    for path in out.parent.glob("*.onnx"):
        if path.name == out.name or path.name.startswith(".") or not path.is_file():
            continue
        with (
            contextlib.suppress(OSError, ValueError),  # unreadable, or empty
            path.open("rb") as stream,
            mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            if content.find(text) >= 0:
                return True
    return False


@contextlib.contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Wait until no other process moves files into a folder, where the system has such locks."""
    try:
        import fcntl

        handle = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):
        yield
        return
    try:
        with contextlib.suppress(OSError):  # some network file systems have none
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _external_bytes(proto: onnx.ModelProto) -> int:
    entries = (external_entry(t) for g in graphs_of(proto.graph) for t in _tensors(g))
    return sum(entry[2] or _MOST_INLINE for entry in entries if entry is not None)


def _tensors(graph: onnx.GraphProto) -> list[TensorProto]:
    inline = [a.t for n in graph.node for a in n.attribute if a.type == onnx.AttributeProto.TENSOR]
    return [*graph.initializer, *inline]


def _copy_range(source: Path, offset: int, length: int | None, sink: BinaryIO) -> None:
    """Append `length` bytes (None: to the end) of a file to an open binary file."""
    left = length
    try:
        with source.open("rb") as stream:
            stream.seek(offset)
            while left is None or left > 0:
                block = stream.read(_CHUNK if left is None else min(_CHUNK, left))
                if not block:
                    break
                sink.write(block)
                if left is not None:
                    left -= len(block)
    except FileNotFoundError:
        raise ModelFileError(f"{source}: external data of the model is missing") from None
    if left:
        raise ModelFileError(f"{source}: external data is truncated by {left} bytes")
