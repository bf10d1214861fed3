"""How fast sizes are compared, read and printed, beside sympy in the same process.

    python -m benchmarks.algebra [GRAPH ...]

Compared one by one are the different memory impacts of a graph's nodes, and many at once rows of its memory
profile; and random polynomials. A comparison ends in one of five verdicts, with a certificate or two witness
shapes; sympy is asked whether the difference is non-negative, and whether its negative is. Times are those of
the process, not of the clock, so that other work on the machine does not count.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.document import Finding, Page, Table
from benchmarks.environment import Progress
from benchmarks.families import graph_sources
from benchmarks.verdicts import impacts
from onnx_symmem.expr.certificate import Images, check
from onnx_symmem.expr.decide import compare, relations
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.dominance import solved_matrix
from onnx_symmem.expr.envelope import envelope
from onnx_symmem.expr.exact import add
from onnx_symmem.expr.expression import ZERO, Expr
from onnx_symmem.expr.matrix import PolyMatrix
from onnx_symmem.expr.sympy_form import to_sympy
from onnx_symmem.expr.tally import Kind, Tally
from onnx_symmem.expr.text import parse

__all__ = ["GRAPHS", "Question", "main", "random_polynomials", "run"]

GRAPHS = ("transformer_train", "encoder_decoder", "nasnet", "series_parallel_0", "bert_6l_train",
          "llama_4l_train", "resnet50_train", "segformer_hw", "sd_unet_train", "densenet121_hw",
          "fasterrcnn_mnv3_nms")  # fmt: skip
SINGLE, BATCHED = 20_000, 500_000  # comparisons a second that are asked for
_THREADS = "OPENBLAS_NUM_THREADS"
_PAIRS = 3_000
_MANY = 200_000
_SYMPY_PAIRS = 40
_REPEATS = 3
_CERTIFICATES = 200


@dataclass(frozen=True)
class Question:
    """Expressions of one origin, and pairs of them."""

    name: str
    domain: Domain
    exprs: Sequence[Expr]
    profile: PolyMatrix | None = None  # of the graph whose nodes' impacts the expressions are

    def pairs(self, count: int) -> list[tuple[Expr, Expr]]:
        """Pairs of different expressions, drawn."""
        return [(self.exprs[i], self.exprs[j]) for i, j in _indices(len(self.exprs), count).tolist()]


def _indices(size: int, count: int) -> np.ndarray:
    """Pairs of different indices, drawn."""
    drawn = np.random.default_rng(0).integers(0, size, (count, 2))
    return drawn[drawn[:, 0] != drawn[:, 1]]


def random_polynomials(count: int = 300, seed: int = 0) -> Question:
    """Polynomials of one to five terms in three unbounded symbols, of mixed signs."""
    rng = np.random.default_rng(seed)
    symbols = [Expr.symbol(name) for name in ("batch", "seq", "width")]
    found: dict[Expr, None] = {}
    while len(found) < count:
        total = ZERO
        for _ in range(int(rng.integers(1, 6))):
            term = Expr.const(int(rng.integers(-64, 4096)))
            for k in rng.integers(0, 3, int(rng.integers(0, 4))).tolist():
                term = term * symbols[k]
            total = total + term
        found[total] = None
    return Question("random polynomials", Domain(), list(found))


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _per_second(count: int, work: Callable[[], object]) -> float:
    """The best of some repeats."""
    return count / max(min(_seconds(work) for _ in range(_REPEATS)), 1e-9)


@dataclass(frozen=True, slots=True)
class _Speed:
    """Comparisons a second: the first ones, later ones, and many at once; and how the single ones ended."""

    first: float
    single: float
    batched: float
    tally: Tally


def _speed(question: Question) -> _Speed:
    pairs, domain = question.pairs(_PAIRS), question.domain
    ended: list[tuple[str, str]] = []

    def all_pairs() -> None:
        verdicts = [compare(a, b, domain) for a, b in pairs]
        ended[:] = [(verdict.kind, verdict.tier) for verdict in verdicts]

    first = len(pairs) / max(_seconds(all_pairs), 1e-9)
    given = question.exprs if question.profile is None else question.profile
    matrix = solved_matrix(given, domain).unique()[0]
    many = _indices(len(matrix), _MANY)

    def at_once() -> None:
        relations(add(matrix.rows[many[:, 1]], -matrix.rows[many[:, 0]]), matrix.basis, domain)

    return _Speed(first, _per_second(len(pairs), all_pairs), _per_second(len(many), at_once), Tally.of(ended))


def _sympy(question: Question) -> tuple[float, float, float]:
    """(comparisons a second, share that sympy orders, share that we order) on a few pairs."""
    pairs, domain = question.pairs(_SYMPY_PAIRS), question.domain
    forms = [(to_sympy(domain.solved(a), domain), to_sympy(domain.solved(b), domain)) for a, b in pairs]
    answers: list[bool] = []

    def ask() -> None:
        for a, b in forms:
            difference = (b - a).expand()
            answers.append(bool(difference.is_nonnegative) or bool((-difference).is_nonnegative))

    seconds = _seconds(ask)
    ours = Tally.of((compare(a, b, domain).kind, "") for a, b in pairs)
    return len(pairs) / max(seconds, 1e-9), sum(answers) / max(len(answers), 1), ours.decided


def _texts(question: Question) -> tuple[float, float]:
    """(expressions read, printed) a second."""
    texts = [str(expr) for expr in question.exprs]
    read = _per_second(len(texts), lambda: [parse(text) for text in texts])
    fresh = [Expr(dict(expr.terms)) for _ in range(_REPEATS) for expr in question.exprs]
    return read, len(fresh) / max(_seconds(lambda: [str(expr) for expr in fresh]), 1e-9)


def _questions(only: Sequence[str]) -> Iterator[Question]:
    if not only or "random" in only:
        yield random_polynomials()
    sources = {name: s for name, s in graph_sources().items() if name in (only or GRAPHS)}
    for name, source in Progress("algebra").each(sources):
        case = source.case()
        exprs = list(dict.fromkeys(impacts(case)))
        if len(exprs) > 1:
            yield Question(name, case.domain, exprs, case.before.in_use)


def _envelope(question: Question, rows: PolyMatrix) -> tuple[tuple[str | int | float, ...], bool]:
    """A line about the envelope of a profile, and whether its certificates hold, as far as re-checked."""
    start = time.process_time()
    found = envelope(rows, question.domain)
    made = time.process_time()
    some = [drop.certificate(found.matrix, found.domain) for drop in found.drops[:_CERTIFICATES]]
    written = time.process_time()
    images: Images = {}
    holds = all(check(certificate, images) for certificate in some)
    each = (time.process_time() - written) / max(len(some), 1)
    line = question.name, len(rows), len(found.matrix), len(found.members), made - start, 1e3 * each
    return line, holds


def run(only: Sequence[str] = ()) -> Page:
    """The tables."""
    comparisons: list[tuple[str | float, ...]] = []
    beside: list[tuple[str | float, ...]] = []
    texts: list[tuple[str | int | float, ...]] = []
    envelopes: list[tuple[str | int | float, ...]] = []
    wrong: list[str] = []
    slowest: dict[str, float] = {}
    for question in _questions(only):
        name, speed, rate = question.name, _speed(question), _sympy(question)
        kinds = (f"{speed.tally.share(kind):.1%}" for kind in Kind)
        comparisons.append((name, speed.first, speed.single, speed.batched, *kinds))
        beside.append((name, rate[0], speed.single / rate[0], f"{rate[1]:.0%}", f"{rate[2]:.0%}"))
        texts.append((name, len(question.exprs), *_texts(question)))
        if question.profile is not None:
            line, holds = _envelope(question, question.profile)
            envelopes.append(line)
            wrong += [] if holds else [f"{name}: a certificate of the envelope does not hold"]
            for what, number in (
                ("first", speed.first),
                ("single", speed.single),
                ("batched", speed.batched),
                ("ratio", speed.single / rate[0]),
            ):
                slowest[what] = min(slowest.get(what, number), number)
    single, batched = slowest.get("single", 0.0), slowest.get("batched", 0.0)
    kinds_titles = tuple(map(str, Kind))
    return Page(
        "algebra",
        "Speed of the algebra",
        """Rates are the best of three repeats in one process, but for those of the first time, and per second
        of its own time; certificates are found, not written out. Pairs are drawn from what is different; dims
        are unbounded.""",
        (
            Finding(
                "single comparisons a second, tables made",
                f"{single:,.0f}",
                f"at least {SINGLE:,}",
                single >= SINGLE,
            ),
            Finding(
                "batched comparisons a second", f"{batched:,.0f}", f"at least {BATCHED:,}", batched >= BATCHED
            ),
            Finding("single comparisons a second, first time", f"{slowest.get('first', 0.0):,.0f}"),
            Finding("times the rate of sympy", f"{slowest.get('ratio', 0.0):,.0f}"),
        ),
        (
            Table(
                "algebra_comparisons",
                "Comparisons a second",
                ("pairs of", "single, first time", "single, again", "batched", *kinds_titles),
                tuple(comparisons),
                """first time: with all tables still to be made; again: the same pairs once more, where
                everything that the prover settles is kept (facts, max and min, small domains, sectors, boxes,
                and what it leaves open), and only what samples and simple maps tell is told anew; batched:
                samples and linear maps on 200,000 pairs of rows of the memory profile at once. Verdicts are
                those of the single comparisons.""",
                digits=0,
            ),
            Table(
                "algebra_sympy",
                "sympy on the same pairs",
                ("pairs of", "a second", "times slower", "ordered by sympy", "ordered here"),
                tuple(beside),
                "Where each is larger somewhere, nothing can order the two; sympy does not tell so.",
                digits=0,
            ),
            Table(
                "algebra_texts",
                "Texts a second",
                ("expressions of", "different", "read", "printed"),
                tuple(texts),
                digits=0,
            ),
            Table(
                "algebra_envelopes",
                "Envelopes of memory profiles",
                ("graph", "rows", "different", "members", "s", "re-check of a certificate, ms"),
                tuple(envelopes),
            ),
        ),
        wrong=tuple(wrong),
    )


def main(arguments: Sequence[str]) -> int:
    """Print the tables for the graphs that are named, `random` for random polynomials; all by default."""
    if _THREADS not in os.environ:  # BLAS threads that wait for work would count as the process's time
        command = [sys.executable, "-m", "benchmarks.algebra", *arguments]
        return subprocess.run(command, env={**os.environ, _THREADS: "1"}, check=False).returncode
    page = run(arguments)
    for table in page.tables:
        print("\n".join(table.markdown()), "\n")
    for finding in page.findings:
        print(
            f"{finding.what}: {finding.found}" + (f" (asked for {finding.target})" if finding.target else "")
        )
    print("\n".join(f"wrong: {line}" for line in page.wrong))
    return 1 if page.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
