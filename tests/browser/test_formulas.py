"""Formulas in the browser: the integers and the text that Python gives, for any expression."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings

from onnx_symmem.expr.expression import Expr, maximum, minimum, scaled_floor
from onnx_symmem.expr.text import parse
from onnx_symmem.report.html.formulas import FormulaTable
from onnx_symmem.report.html.page import joined_script
from tests.expr.strategies import NAMES, expressions, polynomials

DRAWN, DIFFERENT = 300, 200
SCALES = (0.7, 2.1, 1.15, 0.35, 0.6667)  # float32 products of these round away from the exact ones


def drawn_expressions() -> list[Expr]:
    """Many different expressions, the same in every run."""
    found: dict[Expr, None] = {}

    @settings(derandomize=True, database=None, deadline=None, max_examples=DRAWN)
    @given(expressions(), polynomials())
    def collect(one: Expr, other: Expr) -> None:
        found.update({one: None, other: None})

    collect()
    a, b = Expr.symbol("a"), Expr.symbol("batch size")
    for expr in (maximum(a * b, minimum(b, a + 3)), (a - b) // 7, (3 * a - 5 * b) // (b + 1)):
        found[expr] = None
        found[expr * a * b * a * b] = None  # beyond 2**53, and of both signs
    for scale in SCALES:
        found[scaled_floor(a, scale) * 12] = None
    # As detection models scale images; sizes up to 2**24 are exact.
    c = Expr.symbol("c")
    for side in (160, 320, 800, 1333):
        found[scaled_floor(a, side, (1, minimum(a, c))) + scaled_floor(a, (side, maximum(a, c)))] = None
        found[scaled_floor(a + 1, (b, c), 0.7) * scaled_floor(0.3, (a, c), (c + 7, b))] = None
    return list(found)


def shapes() -> list[dict[str, int]]:
    """Small sizes, usual ones, and some whose products leave the exact numbers of a browser."""
    rng = np.random.default_rng(3)
    names = (*NAMES, "batch size")
    found = [dict.fromkeys(names, 1), dict.fromkeys(names, 10)]
    for top in (20, 20, 3000, 3000, 16_000_000, 16_000_000):
        found.append({name: int(rng.integers(1, top)) for name in names})
    return found


def test_every_expression_has_the_value_it_has_in_python(browser: Any) -> None:
    exprs = drawn_expressions()
    assert len(exprs) >= DIFFERENT
    table = FormulaTable()
    numbers = [table.add(expr) for expr in exprs]
    code = table.to_json()
    # A coefficient beyond 2**53 is a text.
    wide = FormulaTable()
    wide.add(Expr.symbol("a") * ((1 << 60) + 1))
    assert wide.to_json()["exprs"] == [[str((1 << 60) + 1), 0]]
    browser.get("about:blank")
    beyond = 0
    for shape in shapes():
        sizes = [shape[name] for name in code["symbols"]]
        values = browser.execute_script(
            joined_script(("exact",))
            + """
            const [table, numbers, sizes] = arguments;
            // One by one, so that one large value does not move all others to the slow path.
            return numbers.map((n) => String(evaluated(table, sizes, (at) => at.expr(n))));
            """,
            code,
            numbers,
            sizes,
        )
        wanted = [expr.evaluate(shape) for expr in exprs]
        assert [int(v) for v in values] == wanted
        beyond += sum(abs(v) >= 1 << 53 for v in wanted)
    assert beyond > 100


def test_the_copied_text_is_the_expression(browser: Any) -> None:
    exprs = drawn_expressions()
    table = FormulaTable()
    numbers = [table.add(expr) for expr in exprs]
    browser.get("about:blank")
    script = joined_script(("words",)) + "return arguments[1].map((n) => pythonText(arguments[0], n));"
    texts = browser.execute_script(script, table.to_json(), numbers)
    assert [parse(text) for text in texts] == exprs


def test_budgets_and_sizes_as_people_write_them(browser: Any) -> None:
    browser.get("about:blank")
    cases = {
        "24GiB": 24 << 30,
        "24 GB": 24_000_000_000,
        "1.5gib": 3 << 29,
        "1.5g": None,
        "25769803776": 25_769_803_776,
        "80 kib": 81_920,
        "": None,
        "24 parsecs": None,
        "-3GiB": None,
    }
    script = joined_script(("words",)) + "return arguments[0].map(parseBytes);"
    assert browser.execute_script(script, list(cases)) == list(cases.values())
    sizes = [0, 1, 1023, 1024, 41_680_896, 104_852_000, 5 << 40]
    script = joined_script(("words",)) + "return arguments[0].map(bytes);"
    shown = ["0 B", "1 B", "1,023 B", "1.00 KiB", "39.75 MiB", "99.99 MiB", "5.00 TiB"]
    assert browser.execute_script(script, sizes) == shown
