from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.expression import Expr
from onnx_symmem.expr.text import parse
from onnx_symmem.order.steering import further_shapes, shapes_of_members, steering_shapes

SHAPES = steering_shapes(Domain(), ("n", "m"))


def largest(members: list[Expr], shape: dict[str, int]) -> Expr:
    return max(members, key=lambda member: member.evaluate(shape))


def test_further_shapes_are_legal_and_no_others_again():
    domain = Domain({"n": SymbolRange(8, 24, 8), "m": SymbolRange(1, 2)}, {"k": parse("2*n")})
    every = [{"n": n, "m": m, "k": 2 * n} for n in (8, 16, 24) for m in (1, 2)]
    corners = [s for s in every if s["n"] != 16]
    found = further_shapes(domain, corners, 50, seed=1)
    assert found
    assert all(shape in every for shape in found)
    assert not any(shape in corners for shape in found)
    assert further_shapes(domain, every, 50, seed=1) == []
    assert further_shapes(domain, corners[:1], 0, seed=1) == []


def test_a_member_that_is_the_peak_at_no_steering_shape_gets_one():
    between = [parse("n*m"), parse("900"), parse("20*n + 20*m - 100")]
    assert all(largest(between, shape) != between[2] for shape in ({"n": 1, "m": 1}, {"n": 512, "m": 512}))
    found = shapes_of_members(between, Domain(), SHAPES[:3], 2)
    assert largest(between, found[0]) == between[2]
    assert len(found) == 1  # then all three were the largest somewhere


def test_no_shape_where_every_member_was_the_largest_or_none_is_known():
    assert shapes_of_members([parse("n*m"), parse("500")], Domain(), SHAPES, 2) == ()
    assert shapes_of_members([parse("n*m")], Domain(), SHAPES, 2) == ()
    assert shapes_of_members([parse("n*k"), parse("500")], Domain(), SHAPES, 2) == ()  # k has no size
    # Hardly above: 1 % of a percent.
    assert shapes_of_members([parse("n*m + 10000"), parse("n*m + 10001 - n")], Domain(), SHAPES[:1], 2) == ()


def test_shapes_are_legal_and_the_highest_member_comes_first():
    domain = Domain({"n": SymbolRange(8, 64, 8), "m": SymbolRange(1, 100)}, {"k": parse("2*n")})
    shapes = ({"n": 8, "m": 1},)
    members = [parse("5000"), parse("100*n"), parse("k*m")]
    found = shapes_of_members(members, domain, shapes, 3)
    assert [largest(members, domain.completed(shape)) for shape in found] == [members[2], members[1]]
    assert all(domain.contains(shape) and shape.keys() == {"n", "m"} for shape in found)
    assert shapes_of_members(members, domain, shapes, 1) == found[:1]


def test_what_is_in_the_data_is_shared_evenly_and_once_unevenly():
    """Dims of inputs are as wanted, whatever experts find of the tokens."""
    facts = ("2*t - a - b - c - d", *(f"t - {name}" for name in "abcd"))
    domain = Domain({name: SymbolRange(0, None) for name in "abcd"}, {}, tuple(map(parse, facts)))
    shapes = [[shape[name] for name in ("t", *"abcd")] for shape in steering_shapes(domain, ("t",))]
    assert shapes == [[1, 1, 1, 0, 0], [22, 11, 11, 11, 11], [512, 256, 256, 256, 256], [22, 22, 22, 0, 0]]
