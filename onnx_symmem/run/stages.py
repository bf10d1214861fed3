"""The stages of a long work: seconds of each, and one progress over all of them.

How long a stage takes is not known before it ends. Shares of the whole are those that stages took on usual
models; a stage that does not take place, or ends early, is passed over. So the time left is a guess that gets
better, and progress never goes back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

__all__ = ["STEPS", "Stages", "Tick"]

Tick = Callable[[str, int, int], None]
"""Told what is being done, how many steps of the whole are done, and how many there are."""

STEPS = 1000


class Stages:
    """Seconds per stage, and the caller's progress.

    `shares` are by the words of what is being done, in the order in which it is, without what stands behind
    them in brackets; words that have none are shown, and do not move the progress. `without` is left out.
    """

    def __init__(self, tick: Tick | None, shares: Mapping[str, float], without: Collection[str] = ()) -> None:
        self.seconds: dict[str, float] = {}
        self._tell: Tick = tick or (lambda _words, _done, _total: None)
        kept = {words: share for words, share in shares.items() if words not in without}
        whole = sum(kept.values())
        self._spans: dict[str, tuple[float, float]] = {}
        before = 0.0
        for words, share in kept.items():
            self._spans[words] = (before / whole, share / whole)
            before += share
        self._done = 0

    @contextmanager
    def stage(self, name: str, words: str) -> Iterator[None]:
        """Time what is done inside."""
        self.tick(words, 0, 0)
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def tick(self, words: str, done: int, total: int) -> None:
        """So many steps of what is being done are done; 0 of 0: it begins."""
        start, share = self._spans.get(words.partition(" (")[0], (0.0, 0.0))
        part = min(done / total, 1.0) if total else 0.0
        self._done = max(self._done, min(int((start + share * part) * STEPS), STEPS - 1))
        self._tell(words, self._done, STEPS)
