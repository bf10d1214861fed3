"""Several models at once: `optimize` for each, side by side, with one summary that a later call goes on from.

Every model is a task of its own; one that fails is a row of the summary, not the end. The summary stands in
the output folder and is renewed after every model: a call that was interrupted, or is made again, leaves out
what it made before from the same files with the same options.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnx_symmem.errors import SymmemError, UsageError

__all__ = ["SUMMARY", "Batch", "Outcome", "optimize_each", "targets"]

SUMMARY = "onnx-symmem.json"
"""Name of the summary in the output folder."""

_UNEXPECTED = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one model.

    `code` is the exit code of its `optimize`, `message` the line that goes with it where it is not 0.
    `figures` are the documented JSON of `optimize`, None where it failed. `made_from` tells the source and
    the options apart from others; `kept` says that the file was there from an earlier call.
    """

    model: str
    out: str
    code: int
    message: str
    made_from: str
    figures: Mapping[str, Any] | None
    kept: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "out": self.out,
            "code": self.code,
            "message": self.message,
            "made_from": self.made_from,
            "kept": self.kept,
            "figures": self.figures,
        }


@dataclass(frozen=True, slots=True)
class Batch:
    """All outcomes, in the order of the models."""

    folder: str
    outcomes: tuple[Outcome, ...]

    @property
    def code(self) -> int:
        """The exit code of the worst."""
        return max((o.code for o in self.outcomes), default=0)

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form."""
        return {
            "schema": "onnx-symmem/batch",
            "version": 1,
            "folder": self.folder,
            "code": self.code,
            "models": [o.to_json() for o in self.outcomes],
        }


def targets(models: Sequence[Path], folder: Path) -> list[tuple[Path, Path]]:
    """Each model with the file that it is to become; folders stand for the .onnx files in them.

    Raises UsageError where two would become one file, or a folder has no model.
    """
    found: list[Path] = []
    for model in models:
        inside = sorted(model.glob("*.onnx")) if model.is_dir() else [model]
        if not inside:
            raise UsageError(f"{model}: no .onnx file in this folder")
        found += inside
    made: dict[Path, Path] = {}
    for model in dict.fromkeys(found):
        out = folder / model.name
        if out in made:
            raise UsageError(f"{made[out]} and {model} would both become {out}; optimise them apart")
        if out.exists() and out.samefile(model):
            raise UsageError(f"{model}: lies in {folder}, where the results go; choose another --out-dir")
        made[out] = model
    return [(model, out) for out, model in made.items()]


def optimize_each(
    pairs: Sequence[tuple[Path, Path]],
    folder: Path,
    options: Mapping[str, Any],
    jobs: int = 1,
    backend: str | None = None,
) -> Iterator[Outcome]:
    """Optimise every model to its file; outcomes come in the order of the models, and the summary grows.

    `options` are keywords of `api.optimize`. `jobs` run at once, in processes, or in what the joblib
    `backend` names.
    """
    import joblib

    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: is a file; expected a folder for the results")
    try:
        workers = joblib.parallel_config(backend=backend or "loky")
    except (ValueError, ImportError) as error:
        raise UsageError(f"--parallel-backend '{backend}': {' '.join(str(error).split())}") from error
    _check_named(pairs, options.get("domain") or {})
    folder.mkdir(parents=True, exist_ok=True)
    before = _earlier(folder / SUMMARY)
    marks = [_made_from(model, options) for model, _ in pairs]
    kept = {
        str(out): before[str(out)]
        for (_, out), mark in zip(pairs, marks, strict=True)
        if str(out) in before and before[str(out)].made_from == mark and _is_there(before[str(out)])
    }
    tasks = [
        joblib.delayed(_optimized)(str(model), str(out), dict(options), mark)
        for (model, out), mark in zip(pairs, marks, strict=True)
        if str(out) not in kept
    ]
    with workers:
        fresh = iter(joblib.Parallel(n_jobs=jobs, return_as="generator")(tasks))
        done = dict(before)
        for _, out in pairs:
            outcome = replace(kept[str(out)], kept=True) if str(out) in kept else next(fresh)
            done[str(out)] = outcome
            _write(folder / SUMMARY, Batch(str(folder), tuple(done.values())))
            yield outcome


def _optimized(model: str, out: str, options: dict[str, Any], mark: str) -> Outcome:
    """One task; whatever happens is its outcome."""
    from onnx_symmem import api

    try:
        options["domain"] = _named_in(model, options.get("domain") or {})
        found = api.optimize(model, out, **options)
    except SymmemError as error:
        return Outcome(model, out, error.exit_code, " ".join(str(error).split()), mark, None)
    except Exception as error:  # a defect in one model must not end the others
        message = f"unexpected {type(error).__name__}: {' '.join(str(error).split())}"
        return Outcome(model, out, _UNEXPECTED, message, mark, None)
    return Outcome(model, out, 0, "", mark, found.to_json())


def _named_in(model: str, domain: Mapping[str, Any]) -> dict[str, Any]:
    """What is said of the dims that a model has: models of one call need not have the same."""
    from onnx_symmem.graph.load import load_model
    from onnx_symmem.run.stated_domain import input_dims

    names = input_dims(load_model(model).view())
    return {name: said for name, said in domain.items() if name in names}


def _check_named(pairs: Sequence[tuple[Path, Path]], domain: Mapping[str, Any]) -> None:
    """Refuse a name that no model has, where all can be read: one that cannot may have it."""
    from onnx_symmem.graph.load import load_model
    from onnx_symmem.run.stated_domain import check_shared, input_dims

    if not domain:
        return
    try:
        dims = [input_dims(load_model(model).view()) for model, _ in pairs]
    except SymmemError:
        return
    check_shared(domain, dims)


def _made_from(model: Path, options: Mapping[str, Any]) -> str:
    """Fingerprint of a source and the options; weights beside it count by size and time of change."""
    state = hashlib.blake2b(repr(sorted(options.items())).encode(), digest_size=16)
    if model.is_file():
        state.update(model.read_bytes())
        for beside in sorted(p for p in model.parent.glob(f"{model.stem}*") if p != model and p.is_file()):
            status = beside.stat()
            state.update(f"{beside.name} {status.st_size} {status.st_mtime_ns}".encode())
    return state.hexdigest()


def _is_there(outcome: Outcome) -> bool:
    files = (outcome.figures or {}).get("files", ())
    return outcome.code == 0 and bool(files) and all(Path(f).is_file() for f in files)


def _earlier(path: Path) -> dict[str, Outcome]:
    """Outcomes of an earlier call by target; none where there is no summary that can be read."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        rows = [Outcome(**row) for row in document["models"]]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {row.out: row for row in rows}


def _write(path: Path, batch: Batch) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(batch.to_json(), indent=2, ensure_ascii=False), encoding="utf-8")
    temporary.replace(path)
