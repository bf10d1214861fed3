"""The order that is kept is proved, whatever the steering shapes say."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_symmem.errors import VerificationFailed
from onnx_symmem.expr.domain import Domain, SymbolRange
from onnx_symmem.graph.load import load_model
from onnx_symmem.memory.peak import peak, peak_of
from onnx_symmem.memory.plan import prepare
from onnx_symmem.memory.profile import profile
from onnx_symmem.memory.sizes import from_written, value_sizes
from onnx_symmem.order.candidates import CandidateOrder, peaks_at
from onnx_symmem.order.check import check_choice
from onnx_symmem.order.selection import choose_order
from onnx_symmem.shapes.engine import infer_shapes

SMALL = ({"N": 1},)


def sizes_of_two_pairs(x, y, z):
    """A graph of two independent pairs of nodes as it is planned, and the bytes of its values."""
    nodes = [
        helper.make_node("Exp", ["x"], ["wide"]),
        helper.make_node("ReduceSum", ["wide", "axis"], ["sums"], keepdims=0),
        helper.make_node("Exp", ["y"], ["table"]),
        helper.make_node("MatMul", ["z", "table"], ["rows"]),
    ]
    inputs = {"x": x, "y": y, "z": z}
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in inputs.items()]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("sums", "rows")]
    graph = helper.make_graph(nodes, "g", infos, outputs, [numpy_helper.from_array(np.array([0]), "axis")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    view = load_model(model).view()
    shapes = infer_shapes(view)
    return prepare(view.graph, from_written(shapes.graph)), value_sizes(shapes.graph)


def orders_of_two_pairs(x, y, z):
    """Candidates for them, one pair first and the other."""
    prepared, sizes = sizes_of_two_pairs(x, y, z)

    def candidate(name, order):
        found = profile(prepared.plan(order), sizes)
        return CandidateOrder(name, order, "priority", order, found, peaks_at(found, SMALL))

    return candidate("before", (0, 1, 2, 3)), candidate("other", (2, 3, 0, 1))


@pytest.fixture(scope="module")
def two_orders():
    """Before, and the other order of two independent pairs: better for N <= 8, worse for N > 8.

    First pair: 400*N bytes, then 400; second pair: 3200 bytes, then 8*N.
    """
    return orders_of_two_pairs(["N", 100], [400, 2], ["N", 400])


def test_the_orders_cross(two_orders):
    before, other = (peak(c.profile, Domain()) for c in two_orders)
    assert (before.at({"N": 1}), other.at({"N": 1})) == (3608, 3208)
    assert (before.at({"N": 100}), other.at({"N": 100})) == (40400, 41200)


def test_an_order_that_is_better_where_it_was_tried_and_worse_elsewhere_is_refuted(two_orders):
    choice = choose_order(two_orders[0].profile, two_orders, Domain(), shapes=SMALL)
    assert choice.chosen.name == "before"
    assert {t.name: t.outcome for t in choice.tried} == {"before": "chosen", "other": "refuted"}
    witness = choice.witnesses[0]
    assert peak(two_orders[1].profile, Domain()).at(witness) > choice.before.at(witness)


def test_on_a_domain_where_it_is_proved_it_is_chosen(two_orders):
    domain = Domain({"N": SymbolRange(1, 8)})
    choice = choose_order(two_orders[0].profile, two_orders, domain, shapes=SMALL)
    assert (choice.chosen.name, choice.never_worse) == ("other", "proved")
    assert all(choice.after.at({"N": n}) <= choice.before.at({"N": n}) for n in range(1, 9))


def test_where_nothing_is_proved_the_order_is_kept(two_orders):
    smaller = peak(two_orders[1].profile, Domain({"N": SymbolRange(1, 1)}))
    choice = choose_order(smaller, two_orders[:1], Domain())
    assert (choice.chosen.name, choice.never_worse) == ("before", "kept")


@pytest.fixture(scope="module")
def nearly_better():
    """The other order is better for N < 8, and worse by 8*N bytes from there on.

    First pair: 400,000*N bytes, then 400,000; second pair: 3,200,000 bytes, then 8*N.
    """
    return orders_of_two_pairs(["N", 5, 20_000], [400_000, 2], ["N", 400_000])


def test_an_order_that_is_much_better_and_worse_by_next_to_nothing_is_chosen_and_that_is_said(nearly_better):
    domain = Domain({"N": SymbolRange(1, 12)})
    choice = choose_order(nearly_better[0].profile, nearly_better, domain, shapes=SMALL)
    assert (choice.chosen.name, choice.never_worse, choice.overhead) == ("other", "proved", 8 * 12)
    above = [choice.after.at({"N": n}) - choice.before.at({"N": n}) for n in range(1, 13)]
    assert max(above) == choice.overhead
    assert min(above) < -0.02 * choice.before.at({"N": 1})
    assert choice.chosen.order == (2, 3, 0, 1)
    assert choice.proof is not None
    assert choice.proof.check()


@pytest.mark.parametrize("most", [1_000, None])
def test_an_order_that_is_worse_by_more_is_not(nearly_better, most):
    """At N = 1,000 it takes 8,000 bytes more, above a thousandth of what would have run at N = 1."""
    domain = Domain({"N": SymbolRange(1, most)})
    choice = choose_order(nearly_better[0].profile, nearly_better, domain, shapes=SMALL)
    assert (choice.chosen.name, choice.overhead) == ("before", 0)


def test_an_order_that_is_better_than_the_one_kept_but_not_than_what_would_have_run_is_not(nearly_better):
    """As it is written now the order that would have run takes more than it would have."""
    domain = Domain({"N": SymbolRange(1, 7)})
    other = peak(nearly_better[1].profile, domain)
    choice = choose_order(
        peak_of([m - 8 for m in other.members], domain), nearly_better, domain, shapes=SMALL
    )
    assert nearly_better[1].peaks[0] < 0.98 * nearly_better[0].peaks[0]
    assert (choice.chosen.name, choice.never_worse, choice.overhead) == ("before", "kept", 0)


def test_an_order_that_gains_little_is_not_worth_being_worse_anywhere():
    """First pair: 40,000*N bytes, then 40,000, which the other order does not hold: 1.2 % at N = 1."""
    orders = orders_of_two_pairs(["N", 10_000], [400_000, 2], ["N", 400_000])
    domain = Domain({"N": SymbolRange(1, 100)})
    choice = choose_order(orders[0].profile, orders, domain, shapes=SMALL)
    assert orders[1].peaks < orders[0].peaks
    assert (choice.chosen.name, choice.overhead) == ("before", 0)


def test_the_check_holds_a_choice_to_the_bytes_that_it_may_be_above(nearly_better):
    domain = Domain({"N": SymbolRange(1, 12)})
    choice = choose_order(nearly_better[0].profile, nearly_better, domain, shapes=SMALL)
    sizes = sizes_of_two_pairs(["N", 5, 20_000], [400_000, 2], ["N", 400_000])[1]
    check_choice(choice, sizes, domain, SMALL)
    with pytest.raises(VerificationFailed):
        check_choice(replace(choice, overhead=choice.overhead - 8), sizes, domain, SMALL)
