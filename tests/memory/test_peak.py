from onnx import helper

from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.expr.expression import Expr
from onnx_symmem.memory.peak import peak, peak_of
from tests.memory.runtime import info, model, predicted

N, M = Expr.symbol("N"), Expr.symbol("M")


def node(text, **attributes):
    head, tail = text.split(">")
    op, *reads = head.split()
    return helper.make_node(op, reads, tail.split(), name=tail.split()[0], **attributes)


def two_summits():
    """x of N grows to 3N, then a constant 40 elements stand beside N."""
    return predicted(
        model(
            [
                node("Concat x x x > a", axis=0),
                node("ReduceMax a > b", axes=[0]),
                node("Expand one to > c"),
                node("MatMul b c > y"),
            ],
            [info("x", [1, "N"]), info("one", ["N", 1]), info("to", [2], 7)],
            [info("y", [1, 40])],
            (),
            [info("a", [3, "N"]), info("b", [1, "N"]), info("c", ["N", 40])],
        )
    )


def test_the_peak_is_the_largest_row_at_every_shape():
    memory = two_summits()
    assert memory.in_use.exprs() == [12 * N, 16 * N, 164 * N, 164 * N + 160]
    found = peak(memory, Domain())
    assert found.members == (164 * N + 160,)
    assert found.at({"N": 3}) == 652
    point = found.point_at({"N": 3})
    assert (point.row, point.where) == (3, "MatMul 'y'")
    assert [t.name for t in point.live] == ["b", "c", "y"]


def test_several_moments_share_the_peak():
    found = peak_of([4 * N + 100, 8 * N, 6 * N + 10, 2 * N], Domain())
    assert sorted(map(str, found.members)) == ["4*N + 100", "8*N"]
    assert [found.at({"N": n}) for n in (1, 25, 100)] == [104, 200, 800]
    assert found.point_at({"N": 25}).row == 0  # both are 200: the earlier one
    assert found.point_at({"N": 100}).row == 1


def test_the_domain_decides_what_can_be_a_peak():
    rows = [4 * N + 100, 8 * N]
    assert peak_of(rows, Domain({"N": SymbolRange(100, 200)})).members == (8 * N,)
    assert peak_of(rows, Domain({"N": SymbolRange(1, 20)})).members == (4 * N + 100,)


def test_nothing_is_the_peak_of_nothing():
    empty = predicted(model([], [info("x", [1, "N"])], [info("x", [1, "N"])]))
    found = peak(empty, Domain())
    assert found.at({"N": 5}) == 0
    assert (found.point_at({"N": 5}).where, found.point_at({"N": 5}).live) == ("", ())
