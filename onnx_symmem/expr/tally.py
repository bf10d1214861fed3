"""How comparisons ended, and counts of it: by kind of verdict and by the tier that reached it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["KINDS", "Kind", "Tally"]


class Kind(StrEnum):
    """The relation of a to b at all shapes of a domain."""

    LE = "LE"  # a <= b
    GE = "GE"  # a >= b
    EQ = "EQ"  # a == b
    INCOMPARABLE = "INCOMPARABLE"  # a < b at one shape, a > b at another
    UNKNOWN = "UNKNOWN"


KINDS = tuple(Kind)


@dataclass(frozen=True, slots=True)
class Tally:
    """How many questions were settled how: counts by (kind, tier). Tallies add up."""

    counts: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @staticmethod
    def of(settled: Iterable[tuple[str, str]]) -> Tally:
        """Counts of (kind, tier) pairs."""
        counts = Counter((str(kind), tier) for kind, tier in settled)
        return Tally(dict(sorted(counts.items())))

    def __add__(self, other: Tally) -> Tally:
        total = Counter(self.counts)
        total.update(other.counts)
        return Tally(dict(sorted(total.items())))

    @property
    def total(self) -> int:
        """All questions."""
        return sum(self.counts.values())

    def share(self, *kinds: Kind) -> float:
        """The part of all questions that ended with one of these verdicts; 0 where none was asked."""
        wanted = sum(n for (kind, _), n in self.counts.items() if kind in kinds)
        return wanted / self.total if self.total else 0.0

    @property
    def decided(self) -> float:
        """The share of questions whose expressions can be ordered."""
        return self.share(Kind.LE, Kind.GE, Kind.EQ)

    @property
    def settled(self) -> float:
        """The share of questions with an answer: ordered, or shown to be incomparable by two shapes."""
        return self.share(Kind.LE, Kind.GE, Kind.EQ, Kind.INCOMPARABLE)

    def as_dict(self) -> dict[str, dict[str, int]]:
        """Counts by kind, then by tier."""
        result: dict[str, dict[str, int]] = {}
        for (kind, tier), n in self.counts.items():
            result.setdefault(kind, {})[tier] = n
        return result

    def by_kind(self) -> dict[str, int]:
        """Counts by kind."""
        result: dict[str, int] = {}
        for (kind, _), n in self.counts.items():
            result[kind] = result.get(kind, 0) + n
        return result

    def by_tier(self) -> dict[str, int]:
        """Counts by tier."""
        result: dict[str, int] = {}
        for (_, tier), n in self.counts.items():
            result[tier] = result.get(tier, 0) + n
        return result
