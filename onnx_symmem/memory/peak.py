"""The most memory a plan ever takes, for all shapes: the largest rows of its profile, certified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnx_symmem.expr.decide import Tally
from onnx_symmem.expr.domain import Domain
from onnx_symmem.expr.envelope import Envelope, envelope
from onnx_symmem.expr.expression import ZERO, Expr
from onnx_symmem.expr.matrix import PolyMatrix
from onnx_symmem.memory.profile import MemoryProfile, Slot

__all__ = ["Peak", "PeakPoint", "peak", "peak_of"]


@dataclass(frozen=True, slots=True)
class PeakPoint:
    """A moment that is the peak at some shapes: its row, its place in words, and what is alive then."""

    bytes: Expr
    row: int
    where: str
    live: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class Peak:
    """The maximum of a few expressions: no row of the profile is above all of them at any legal shape.

    `rows` are the members' rows in the profile. Where several rows are the same expression, the first
    stands for all.
    """

    envelope: Envelope
    profile: MemoryProfile | None = None

    @property
    def members(self) -> tuple[Expr, ...]:
        """The expressions whose maximum is the peak, in bytes."""
        return self.envelope.members

    @property
    def rows(self) -> tuple[int, ...]:
        """The row of every member."""
        return self.envelope.member_rows

    @property
    def tally(self) -> Tally:
        """How the comparisons behind it were settled."""
        return self.envelope.tally

    def at(self, shape: Mapping[str, int]) -> int:
        """Bytes at a shape."""
        return self.envelope.at(shape)

    def point(self, member: int) -> PeakPoint:
        """The moment behind a member."""
        row = self.rows[member]
        if self.profile is None:
            return PeakPoint(self.members[member], row, "", ())
        return PeakPoint(self.members[member], row, self.profile.where(row), self.profile.live(row))

    def point_at(self, shape: Mapping[str, int]) -> PeakPoint:
        """The moment of the peak at a shape, the earliest where several are."""
        values = [m.evaluate(shape) for m in self.members]
        highest = max(values)
        ties = [k for k, value in enumerate(values) if value == highest]
        return self.point(min(ties, key=self.rows.__getitem__))


def peak(profile: MemoryProfile, domain: Domain) -> Peak:
    """The peak of outputs and activations of a plan over all shapes of the domain; 0 without nodes."""
    return Peak(envelope(profile.in_use, domain), profile) if profile.moments else peak_of([ZERO], domain)


def peak_of(exprs: PolyMatrix | Sequence[Expr], domain: Domain) -> Peak:
    """The maximum of one or more expressions that belong to no profile, such as a bound."""
    return Peak(envelope(exprs, domain))
