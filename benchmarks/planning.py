"""How long planning takes: seconds per stage for transformers of growing size.

    python -m benchmarks.planning [--nodes 1000,10000,100000]

The graphs are decoders of the demo's kind with many narrow layers. ONNX Runtime is not involved: level none,
nothing is run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from models.decoder import build_decoder
from onnx_symmem.api import optimize

__all__ = ["PLANNED_NODES", "PlanningTime", "main", "planning_times"]

PLANNED_NODES = (1_000, 10_000)
STAGES = ("shapes", "plan", "prove")


@dataclass(frozen=True, slots=True)
class PlanningTime:
    """Seconds that `optimize` took for a graph, in all and per stage."""

    nodes: int
    seconds: Mapping[str, float]
    never_worse: str
    optimal: bool

    @property
    def total(self) -> float:
        """Seconds of the stages that think: shapes, plan and prove."""
        return sum(self.seconds.get(stage, 0.0) for stage in STAGES)


def planning_times(
    sizes: Iterable[int] = PLANNED_NODES, tell: Callable[[str], None] | None = None
) -> tuple[PlanningTime, ...]:
    """Plan one transformer of about each size, in nodes."""
    one, two = (len(build_decoder(layers=n, width=8, heads=2, vocab=16).graph.node) for n in (1, 2))
    found = []
    for size in sizes:
        layers = max(1, round((size - one) / (two - one)) + 1)
        if tell is not None:
            tell(f"planning {size:,} nodes")
        model = build_decoder(layers=layers, width=8, heads=2, vocab=16)
        figures = optimize(model, ort_level="none", verify=False).figures
        found.append(
            PlanningTime(figures.nodes_planned, dict(figures.seconds), figures.never_worse, figures.optimal)
        )
    return tuple(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.planning", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "--nodes", default=",".join(map(str, PLANNED_NODES)), metavar="N,...", help="sizes of the graphs"
    )
    given = parser.parse_args(arguments)
    try:
        sizes = [int(text.replace("_", "")) for text in given.nodes.split(",")]
    except ValueError:
        parser.error(f"--nodes {given.nodes}: expected whole numbers with commas between them")
    print("| nodes | " + " | ".join(f"{stage} s" for stage in STAGES) + " | together s |")
    print("|---|" + "---|" * (len(STAGES) + 1))
    for size in sizes:
        (row,) = planning_times([size])
        cells = [f"{row.seconds.get(stage, 0.0):.2f}" for stage in STAGES]
        print(f"| {row.nodes:,} | {' | '.join(cells)} | {row.total:.2f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
