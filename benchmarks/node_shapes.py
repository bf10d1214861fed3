"""ONNX's node tests at random sizes, 0 and 1 among them: inferred dims against what ONNX Runtime makes.

    python -m benchmarks.node_shapes [--modes unique shared] [--only REGEX] [--sizes 12] [--seed 0] [--all]

Every dim of every input is a symbol (mode unique; in shared, equal sizes share one). Sizes are the test's own
with some of them replaced, as they are or made legal; inputs are the test's own data, repeated. Where ONNX
Runtime runs, every inferred dim has to be the real one, and the sizes must not be ones that a limit of the
model excludes. Where it refuses, nothing is claimed. It runs in a process of its own, which it may take down.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

import numpy as np
import onnx
import onnxruntime as ort

from benchmarks.document import Finding, Page, Table
from benchmarks.node_tests import MODES, SymbolicTest, symbolic_tests
from benchmarks.real_shapes import compare_shapes, run_all_outputs, session_of_all_outputs
from onnx_symmem.errors import DomainError
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.samples import legal_near
from onnx_symmem.graph.load import LoadedModel, load_model
from onnx_symmem.shapes.engine import infer_shapes
from onnx_symmem.shapes.table import ModelShapes

__all__ = ["Runner", "Sweep", "drawn_sizes", "main", "run", "sweep"]

Shape = Mapping[str, int]
Real = Mapping[str, tuple[int, ...]]

COUNT = 12
_SMALL = (0, 1, 2, 3)
_LARGER = 12  # sizes are replaced by less than this, or by one more or less
_SECONDS = 60  # that one run may take
_NEWEST_IR = 13  # that ONNX Runtime reads; newer ones bring nothing that these tests use


@dataclass
class Sweep:
    """What sizes came to: runs that agree, that are refused, and lines for those that do not agree."""

    mode: str
    tests: int = 0
    drawn: int = 0
    ran: int = 0
    agreed: int = 0
    refused: int = 0
    died: int = 0
    wrong: list[str] = field(default_factory=list)
    narrow: list[str] = field(default_factory=list)


class Runner:
    """ONNX Runtime in another process: real dims of all outputs, or why there are none."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other,), daemon=True)
        self._process.start()
        other.close()

    def real_shapes(self, name: str, model: bytes, feeds: Mapping[str, np.ndarray]) -> Real | str | None:
        """Dims by name; a text where the model is refused; None where ONNX Runtime did not survive it."""
        try:
            self._pipe.send((name, model, dict(feeds)))
            if self._pipe.poll(_SECONDS):
                found: Real | str = self._pipe.recv()
                return found
        except (EOFError, OSError):
            pass
        self.close()
        self._start()
        return None

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.kill()
        self._process.join()


def _serve(pipe: Connection) -> None:
    ort.set_default_logger_severity(4)
    os.environ["ALLOW_RELEASED_ONNX_OPSET_ONLY"] = "0"  # tests are stamped with the newest opset
    last, session, refusal = "", None, ""
    while True:
        try:
            name, model, feeds = pipe.recv()
        except EOFError:
            return
        if name != last:
            last, session, refusal = name, None, ""
        try:
            if refusal:
                raise RuntimeError(refusal)
            loaded = LoadedModel(onnx.ModelProto.FromString(model), None, None)
            loaded.proto.ir_version = min(loaded.proto.ir_version, _NEWEST_IR)
            if session is None:
                session = session_of_all_outputs(loaded)
            shapes, _ = run_all_outputs(loaded, feeds, session)
            pipe.send(shapes)
        except Exception as error:  # what ONNX Runtime raises has no type of its own
            refusal = str(error) if session is None else ""  # of the model, at any size
            pipe.send(str(error))


def inputs_at(test: SymbolicTest, sizes: Shape) -> dict[str, np.ndarray]:
    """The test's inputs at other sizes: their data repeated as often as needed."""
    feeds = {}
    for info in test.model.graph.input:
        given = test.inputs[info.name]
        dims = info.type.tensor_type.shape.dim
        shape = tuple(sizes[d.dim_param] if d.dim_param else d.dim_value for d in dims)
        content = given if given.size else np.zeros(1, given.dtype)
        feeds[info.name] = np.resize(content, shape).astype(given.dtype)
    return feeds


def drawn_sizes(test: SymbolicTest, legal: Sequence[Domain], count: int, seed: int) -> Iterator[Shape]:
    """The test's own sizes with some replaced, as drawn and, in turn, near them but legal in one domain."""
    names = sorted(test.sizes)
    rng = np.random.default_rng([seed, *test.name.encode()])
    seen: set[tuple[int, ...]] = set()
    for number in range(count):
        sizes = dict(test.sizes)
        share = float(rng.choice((0.2, 0.5, 1.0)))
        for name in names:
            if rng.random() < share:
                near = max(0, sizes[name] + int(rng.integers(-1, 2)))
                sizes[name] = int(rng.choice((*_SMALL, near, int(rng.integers(_LARGER)))))
        if number % (len(legal) + 1):
            domain = legal[number % (len(legal) + 1) - 1]
            free = {n: v for n, v in sizes.items() if n not in domain.equalities}
            found = legal_near(domain, free)
            if found is None or not found.keys() >= set(names):
                continue
            sizes = {n: found[n] for n in names}
        key = tuple(sizes[n] for n in names)
        if key not in seen:
            seen.add(key)
            yield sizes


def sweep(mode: str, only: str, count: int, seed: int, show: bool = False) -> Sweep:
    """All tests of a mode whose names match."""
    result = Sweep(mode)
    runner = Runner()
    for test in symbolic_tests(mode):
        if not re.search(only, test.name) or not test.sizes:
            continue
        result.tests += 1
        view = load_model(test.model).view()
        usual = infer_shapes(view)
        empty = infer_shapes(view, Domain({name: SymbolRange(0) for name in test.sizes}))
        model = test.model.SerializeToString()
        for sizes in drawn_sizes(test, (usual.domain, empty.domain), count, seed):
            result.drawn += 1
            real = runner.real_shapes(f"{mode} {test.name}", model, inputs_at(test, sizes))
            where = f"{test.name} at {dict(sizes)}"
            if real is None:
                result.died += 1
                if show:
                    print(f"died: {where}", flush=True)
            elif isinstance(real, str):
                result.refused += 1
                if show:
                    print(f"refused: {where}: {real.splitlines()[0][:160]}", flush=True)
            else:
                result.ran += 1
                _judge(result, where, sizes, real, (empty, usual) if all(sizes.values()) else (empty,))
    runner.close()
    return result


def _judge(result: Sweep, where: str, sizes: Shape, real: Real, inferred: Sequence[ModelShapes]) -> None:
    """Compare a run with what was inferred for sizes from 0 and from 1 on."""
    agreed = True
    for shapes in inferred:
        if any(a.kind == "nonempty" and a.left.evaluate(sizes) < 1 for a in shapes.assumptions):
            continue  # said not to be known
        # A size that is in the data, and of no tensor by itself, is not known here.
        lines = [x for x in compare_shapes(shapes, real, sizes) if not x.endswith("not met before")]
        try:
            shapes.domain.check(sizes)
        except DomainError as breach:
            result.narrow.append(f"{where}: runs, against {breach}" + "".join(f"; {x}" for x in lines))
        else:
            if not lines:
                continue
            result.wrong.append(f"{where}: {'; '.join(lines)}")
        agreed = False
        break
    result.agreed += agreed


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what was found per mode; 1 where a dim or a limit is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.node_shapes")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=["unique", "shared"])
    parser.add_argument("--only", default="", help="regular expression on the names of tests")
    parser.add_argument("--sizes", type=int, default=COUNT, help="draws per test")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--all", action="store_true", help="print what ONNX Runtime refuses, too")
    options = parser.parse_args(arguments)
    code = 0
    for mode in options.modes:
        found = sweep(mode, options.only, options.sizes, options.seed, options.all)
        for line in (*(f"WRONG {x}" for x in found.wrong), *(f"NARROW {x}" for x in found.narrow)):
            print(line)
        print(
            f"{mode}: {found.tests} tests, {found.drawn} sizes drawn, {found.ran} ran, {found.agreed} agree, "
            f"{found.refused} refused, {found.died} taken down; {len(found.wrong)} wrong, "
            f"{len(found.narrow)} against a limit",
            flush=True,
        )
        code |= bool(found.wrong or found.narrow)
    return code


def run(only: Sequence[str] = ()) -> Page:
    """The part `node_shapes` of the benchmark: both modes, tests whose names contain one of `only`."""
    names = "|".join(map(re.escape, only))
    found = [sweep(mode, names, COUNT, 0) for mode in ("unique", "shared")]
    ran = sum(s.ran for s in found)
    wrong = tuple(line for s in found for line in (*s.wrong, *s.narrow))
    differ, excluded = sum(len(s.wrong) for s in found), sum(len(s.narrow) for s in found)
    rows = tuple(
        (s.mode, s.tests, s.drawn, s.ran, s.agreed, s.refused, s.died, len(s.wrong), len(s.narrow))
        for s in found
    )
    heads = (
        "mode", "tests", "sizes drawn", "run", "as inferred", "refused", "taken down", "wrong",
        "against a limit"
    )  # fmt: skip
    return Page(
        "node_shapes",
        "ONNX's node tests at random sizes",
        f"""Every node test as a model with symbolic dims, at {COUNT} random sizes each (seeded; 0 and 1 among
        them). Where ONNX Runtime runs, all inferred dims have to be the real ones and no limit may exclude
        the sizes; where it refuses them, or does not survive them, nothing is claimed.""",
        (
            Finding("runs with other dims than inferred", f"{differ} of {ran:,}", "0", not differ),
            Finding("runs that a limit excludes", f"{excluded} of {ran:,}", "0", not excluded),
        ),
        (Table("node_shapes", "Sizes", heads, rows),),
        (),
        wrong,
    )


if __name__ == "__main__":
    sys.exit(main())
