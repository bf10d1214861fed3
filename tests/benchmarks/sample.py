"""Results as a benchmark might have found them."""

from dataclasses import replace

from benchmarks.results import ModelResult, ShapeResult

ROW = ShapeResult(
    shape={"n": 4},
    formula=600,
    predicted=600,
    measured=600,
    nodes=10,
    nodes_equal=1.0,
    scratch=50,
    static=100,
    in_use=750,
    held=1000,
    before_predicted=800,
    before_measured=800,
    shipped_measured=900,
    shipped_in_use=1500,
    shipped_held=4000,
    least=500,
    unpacked_in_use=600,
    unpacked_held=800,
)
MODEL = ModelResult(
    "small",
    "own code",
    nodes=10,
    level="extended",
    seconds={"shapes": 0.5, "plan": 1.0},
    never_worse="proved",
    order="greedy",
    in_place=(1, 3),
    peaks=(({"n": 512}, 4000, 3000, 2900),),
    unpacked_equal=True,
    verified=({"n": 2}, {"n": 5}),
    shapes=(ROW, replace(ROW, shape={"n": 1}, shipped_in_use=900, in_use=900)),
)
