"""The sizes one symbol may have."""

from __future__ import annotations

from dataclasses import dataclass

from onnx_symmem.errors import DomainError

__all__ = ["ANY_SIZE", "SymbolRange"]


@dataclass(frozen=True, slots=True)
class SymbolRange:
    """Values lo..hi that are multiples of `divisor`; hi None is no limit. The ends are made multiples."""

    lo: int = 1
    hi: int | None = None
    divisor: int = 1

    def __post_init__(self) -> None:
        d = self.divisor
        if d < 1:
            raise DomainError(f"divisor {d}: expected 1 or more")
        lo, hi = -(-self.lo // d) * d, None if self.hi is None else self.hi // d * d
        if hi is not None and hi < lo:
            of = f" that are multiples of {d}" if d > 1 else ""
            raise DomainError(f"no sizes in {self.lo}..{self.hi}{of}: the range is empty")
        object.__setattr__(self, "lo", lo)
        object.__setattr__(self, "hi", hi)

    def __contains__(self, value: int) -> bool:
        return value >= self.lo and (self.hi is None or value <= self.hi) and value % self.divisor == 0

    def __str__(self) -> str:
        """`1..inf`, `8..512 step 8`."""
        step = f" step {self.divisor}" if self.divisor > 1 else ""
        return f"{self.lo}..{'inf' if self.hi is None else self.hi}{step}"

    def meet(self, lo: int | None, hi: int | None) -> SymbolRange:
        """The part between lo and hi."""
        low = self.lo if lo is None else max(lo, self.lo)
        if hi is None or self.hi is None:
            return SymbolRange(low, self.hi if hi is None else hi, self.divisor)
        return SymbolRange(low, min(hi, self.hi), self.divisor)


ANY_SIZE = SymbolRange()
