"""Shapes of real models at sizes 0, 1, 2 and 3: every output of every node as inferred, no limit too narrow.

Every model is inferred for sizes from 0 and from 1 on, and run at drawn shapes, half of whose sizes are tiny:
as drawn, or near them but legal in one of the two domains. Every output of every node of the main graph is
fetched. A model has a process of its own, which ONNX Runtime may take down.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from benchmarks.corpus import CORPUS, FILLED, prepare, read_cases
from benchmarks.document import Finding, Page, Table
from benchmarks.real_shapes import (
    bytes_of_outputs,
    compare_shapes,
    draw_feeds,
    run_all_outputs,
    session_of_all_outputs,
)
from onnx_symmem.errors import ModelFileError
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.samples import legal_near
from onnx_symmem.graph.load import check_external_data, load_model
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["EdgeShapes", "compare_at_edges", "edge_shapes", "run"]

COUNT = 24
MOST_BYTES = 1 << 29  # of all node outputs together at one shape
MOST_WORK = 1 << 32  # of all node outputs together at all shapes
_TINY = (0, 1, 2, 3)
_LARGEST = 70  # of the other sizes
_SECONDS = 240  # until a model that hangs is given up


@dataclass
class EdgeShapes:
    """What one model came to: shapes drawn, run, refused, and what does not agree.

    `unexplained` are shapes that ONNX Runtime refuses, and that no limit or assumption excludes.
    """

    name: str
    drawn: int = 0
    ran: int = 0
    empty: int = 0
    refused: int = 0
    tensors: int = 0
    wrong: list[str] = field(default_factory=list)
    narrow: list[str] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)
    note: str = ""


def edge_shapes(
    domains: Sequence[Domain], names: Sequence[str], largest: Mapping[str, int], count: int, seed: int
) -> Iterator[dict[str, int]]:
    """Shapes with tiny sizes: every third as drawn, the others made legal in one domain in turn."""
    rng = np.random.default_rng(seed)
    seen: set[tuple[int, ...]] = set()
    for number in range(count):
        at = {}
        for name in names:
            larger = int(rng.integers(1, min(largest[name], _LARGEST) + 1))
            at[name] = int(rng.choice(_TINY)) if rng.random() < 0.5 else larger
        if number % 3:
            domain = domains[number % len(domains)]
            rest = {name: domain.range_of(name).lo for name in domain.symbols()}
            free = {name: size for name, size in at.items() if name not in domain.equalities}
            legal = legal_near(domain, rest | free)
            if legal is None:
                continue
            whole = domain.completed(legal)
            at = {name: whole[name] for name in names}
        key = tuple(at.values())
        if key not in seen:
            seen.add(key)
            yield at


def compare_at_edges(
    name: str, path: Path, entry: Mapping[str, Any], count: int = COUNT, seed: int = 0
) -> EdgeShapes:
    """Infer a model for sizes from 0 and from 1 on, run it at drawn shapes, compare."""
    model = load_model(path)
    try:
        check_external_data(model)
    except ModelFileError:
        return EdgeShapes(name, note="no weights")
    view = model.view()
    usual = infer_shapes(view)
    names = usual.input_symbols
    zero = infer_shapes(view, Domain({n: SymbolRange(0) for n in names}))
    result = EdgeShapes(name)
    largest = {n: max((case.get(n, 4) for case in entry["cases"]), default=4) for n in names}
    session, left = session_of_all_outputs(model), MOST_WORK
    for number, at in enumerate(edge_shapes((usual.domain, zero.domain), names, largest, count, seed)):
        size = bytes_of_outputs(zero, at)
        if size > min(MOST_BYTES, left):
            continue
        left -= size
        result.drawn += 1
        inferred = (zero, usual) if all(at.values()) else (zero,)
        try:
            feeds = draw_feeds(zero, entry.get("fills", {}), at, seed + number)
            real, _ = run_all_outputs(model, feeds, session)
        except Exception as error:  # what ONNX Runtime raises has no type of its own
            result.refused += 1
            if _allows(inferred[-1], at):
                result.unexplained.append(f"{at}: {str(error).splitlines()[0][:160]}")
            continue
        result.ran += 1
        result.empty += not all(at.values())
        result.tensors += len(real)
        for shapes in inferred:
            if not shapes.domain.contains(shapes.domain.completed(at)):
                result.narrow.append(f"{at} runs")
            else:
                result.wrong.extend(f"{at}: {line}" for line in compare_shapes(shapes, real, at))
    return result


def _allows(shapes: ModelShapes, at: Mapping[str, int]) -> bool:
    """Whether neither a limit nor an assumption of the main graph excludes a shape."""
    sizes = shapes.domain.completed(at)
    if not shapes.domain.contains(sizes):
        return False
    for said in shapes.assumptions:
        if not said.left.symbols() | said.right.symbols() <= sizes.keys():
            continue
        left, right = said.left.evaluate(sizes), said.right.evaluate(sizes)
        if said.kind == "equal" and left != right:
            return False
        if said.kind == "equal_or_one" and left != right and 1 not in (left, right):
            return False
        if said.kind == "nonempty" and left < 1:
            return False
    return True


def _serve(pipe: Connection, name: str, path: Path, entry: Mapping[str, Any]) -> None:
    ort.set_default_logger_severity(4)
    pipe.send(compare_at_edges(name, path, entry))


def _in_a_process(name: str, path: Path, entry: Mapping[str, Any]) -> EdgeShapes:
    context = multiprocessing.get_context("spawn")
    mine, other = context.Pipe()
    process = context.Process(target=_serve, args=(other, name, path, entry), daemon=True)
    process.start()
    other.close()
    try:
        found = mine.recv() if mine.poll(_SECONDS) else EdgeShapes(name, note="took too long")
    except EOFError:
        found = EdgeShapes(name, note="ONNX Runtime did not survive it")
    process.kill()
    process.join()
    mine.close()
    return found


HEADS = (
    "model", "shapes drawn", "run", "with a size of 0", "refused", "tensors", "wrong", "against a limit",
    "refused, not excluded", "note",
)  # fmt: skip


def run(only: Sequence[str] = ()) -> Page:
    """The part `edge_shapes` of the benchmark: the models of the corpus, or some of them."""
    cases = read_cases(CORPUS, only) if CORPUS.is_dir() else {}
    cases = {name: entry for name, entry in cases.items() if entry["cases"]}
    prepare(CORPUS, FILLED, list(cases))
    found = []
    for name, entry in cases.items():
        found.append(_in_a_process(name, FILLED / f"{name}.onnx", entry))
        print(f"{name}: {found[-1].ran} of {found[-1].drawn} ran {found[-1].note}", flush=True)
    rows = tuple(
        (
            f.name, f.drawn, f.ran, f.empty, f.refused, f.tensors, len(f.wrong), len(f.narrow),
            len(f.unexplained), f.note,
        )
        for f in found
    )  # fmt: skip
    ran, tensors = sum(f.ran for f in found), sum(f.tensors for f in found)
    wrong = tuple(f"{f.name} at {line}" for f in found for line in (*f.wrong, *f.narrow))
    differ, narrow = sum(len(f.wrong) for f in found), sum(len(f.narrow) for f in found)
    return Page(
        "edge_shapes",
        "Real models at tiny sizes",
        f"""Every model of the corpus at {COUNT} drawn shapes (seeded), half of whose sizes are 0, 1, 2 or 3.
        Where ONNX Runtime runs, every output of every node has to have the inferred dims, and no limit may
        exclude the shape; both for a domain from 0 and for one from 1 on. Where it refuses, nothing is
        claimed; `refused, not excluded` counts shapes that it refuses without a limit or an assumption that
        says so.""",
        (
            Finding("tensors met with other dims than inferred", f"{differ} of {tensors:,}", "0", not differ),
            Finding("runs that a limit excludes", f"{narrow} of {ran:,}", "0", not narrow),
        ),
        (Table("edge_shapes", "Shapes", HEADS, rows),),
        tuple(f"{f.name}, refused and not excluded: {f.unexplained[0]}" for f in found if f.unexplained),
        wrong,
    )
