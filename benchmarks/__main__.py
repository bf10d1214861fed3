"""The benchmark by parts: python -m benchmarks [PART ...] [--only A,B] [--write-docs]      make bench

Every part prints its findings, writes its tables as CSV to build/bench, and with --write-docs its page to
docs/results. `corpus` writes docs/RESULTS.md and the table of the README instead.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from benchmarks import corpus
from benchmarks.document import Page, write_page
from benchmarks.environment import duration, how_made

__all__ = ["PARTS", "main"]

ROOT = Path(__file__).resolve().parents[1]
TABLES = Path("build", "bench")
PARTS: Mapping[str, str] = {
    "corpus": "real models: predicted and measured, planned and as shipped, planning time",
    "measured": "200 random graphs and the corpus: bytes after every node as predicted",
    "orders": "every scheduler on every family: peak over the certified bound",
    "exact_search": "what exact search and CP-SAT prove of our orders at single shapes",
    "shapes_corpus": "inferred dims of the corpus, at every level, against real runs; speed",
    "node_shapes": "inferred dims of ONNX's node tests at random sizes, 0 and 1 among them",
    "edge_shapes": "inferred dims of the corpus at sizes 0, 1, 2 and 3 against real runs",
    "exact_shapes": "the plan for all shapes against plans made for single shapes",
    "orders_needed": "pairs of shapes at which no order is near both plans, and how many orders it takes",
    "verdicts": "how symbolic comparisons come out, by tier, graph and domain width",
    "algebra": "how fast sizes are compared, read and printed, beside sympy",
    "ablation": "what each part of the search is worth, by domain width",
    "seeds": "spread over orders of the same file",
    "scale": "planning time of graphs with 1,000, 10,000 and 100,000 nodes",
    "levels": "recomputation: peak against added work on training graphs",
    "controls": "repeats that save nothing beside those that do, measured",
    "delivery": "models that keep their plan by themselves: order, peak, anchors, latency",
    "regions": "an If around what differs between levels, beside whole schedules",
    "kept_levels": "levels that the file keeps by itself, in sessions that are told nothing",
    "arena": "what settings of a session do to memory in use and held",
}


def _run(part: str, only: Sequence[str], docs: bool, arguments: Sequence[str]) -> int:
    """One part; 1 where something is wrong that must not be."""
    start = time.perf_counter()
    if part == "corpus":
        given = ["--write-docs"] * docs + (["--only", ",".join(only)] if only else [])
        return corpus.main([*given, "--json", str(TABLES / "corpus.json")])
    run: Callable[[Sequence[str]], Page] = import_module(f"benchmarks.{part}").run
    page = run(only)
    made = how_made([part, *arguments], start)
    files = write_page(page, made, TABLES, ROOT / "docs" / "results" if docs else None)
    print("\n".join([f"\n{page.title}", *page.in_short()[2:], *(f"wrong: {line}" for line in page.wrong)]))
    print(f"{part}: {duration(time.perf_counter() - start)}; {', '.join(map(str, files))}", flush=True)
    return 1 if page.wrong else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts asked for, all of them by default; 1 where one of them found something wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Run the benchmark, or parts of it.",
        epilog="parts:\n" + "\n".join(f"  {name:14}{words}" for name, words in PARTS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help="which parts (default: all)")
    parser.add_argument("--only", default="", metavar="A,B", help="only these graphs, by name")
    parser.add_argument("--write-docs", action="store_true", help="write the pages under docs/")
    given = parser.parse_args(arguments)
    unknown = [part for part in given.parts if part not in PARTS]
    if unknown:
        parser.error(f"no part {unknown[0]}; there are {', '.join(PARTS)}")
    only = [name for name in given.only.split(",") if name]
    shown = (["--only", given.only] if only else []) + (["--write-docs"] if given.write_docs else [])
    codes = [_run(part, only, given.write_docs, shown) for part in given.parts or PARTS]
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main())
