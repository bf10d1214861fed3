"""One progress over all stages of a work: it begins at nothing, never goes back, and is done at the end."""

from __future__ import annotations

import pytest

from models.build import build
from onnx_symmem.order.limits import SearchLimits, within_budget
from onnx_symmem.remat.levels import LevelOptions
from onnx_symmem.run.optimized import OptimizeOptions
from onnx_symmem.run.pipeline import optimize_model
from onnx_symmem.run.several import LevelWish
from onnx_symmem.run.stages import STEPS, Stages

QUICK = within_budget(0.2, SearchLimits())
OPTIONS = {
    "order": OptimizeOptions(search=QUICK, explain=True),
    "anchors": OptimizeOptions(search=QUICK, delivery="anchors"),
    "levels": OptimizeOptions(search=QUICK, levels=LevelWish(None, options=LevelOptions(levels=1))),
    "unverified": OptimizeOptions(search=QUICK, verify=False, dispatch=False),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_progress_of_optimize_is_one(name: str) -> None:
    told: list[tuple[str, int]] = []

    def tick(words: str, done: int, total: int) -> None:
        assert total == STEPS
        told.append((words.partition(" (")[0], done))

    optimize_model(build("mlp_train"), None, {"batch": (1, 64)}, OPTIONS[name], tick)
    done = [steps for _, steps in told]
    assert done[0] == 0
    assert done == sorted(done)
    assert done[-1] < STEPS  # the last stage has begun
    said = {words for words, _ in told}
    assert ("placing anchors" in said) == (name == "anchors")
    assert ("searching levels" in said) == (name == "levels")
    # Whatever is said has its share: the whole moves on.
    unknown = {words for words in said if Stages(None, _shares())._spans.get(words) is None}
    assert unknown == set()


def _shares() -> dict[str, float]:
    from onnx_symmem.run.pipeline import _SHARES

    return dict(_SHARES)


def test_shares_of_what_is_left_out_go_to_the_others() -> None:
    told: list[int] = []
    stages = Stages(lambda _words, done, _total: told.append(done), {"a": 1, "b": 2, "c": 1}, ["b"])
    with stages.stage("first", "a (with more words)"):
        stages.tick("a", 1, 2)
        stages.tick("unheard of", 1, 2)
        stages.tick("a", 0, 2)
    with stages.stage("last", "c"):
        stages.tick("c", 3, 2)
    assert told == [0, 250, 250, 250, 500, STEPS - 1]
    assert list(stages.seconds) == ["first", "last"]
