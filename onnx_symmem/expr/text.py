"""Text to size expressions: the syntax of `str(Expr)`, and what exporters write into `dim_param`.

    sum      := product (("+" | "-") product)*
    product  := signed (("*" | "/" | "//" | "%") signed)*
    signed   := ("+" | "-")* power
    power    := primary ("**" digits)?
    primary  := number | name | name "(" arguments ")" | "(" sum ")"
    number   := digits, or a decimal with a point or an exponent, read as an exact fraction
    name     := a Python identifier; sym('any text') is the symbol of that name

Functions: floor, ceil, ceiling, Max, Min, Mod, FloorDiv, CeilDiv and their spellings in sympy, torch
and ONNX Runtime's symbolic shape inference; floor_f32(x, scale) is the float32 floor of Resize, of as many
factors as were rounded.
Fractions are exact between the operators, and a whole text has to be an integer for every size:
`floor(H/2 + 1/2)` reads as `(H + 1)//2`, a bare `H/2` is refused. Text is never executed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from fractions import Fraction
from math import gcd

from onnx_symmem.errors import ExpressionError
from onnx_symmem.expr.expression import ONE, Expr, ceildiv, maximum, minimum, scaled_floor

__all__ = ["dim_from_text", "parse"]

_MAX_DEPTH = 120  # nested parentheses; each costs four Python frames
_MAX_POWER = 999
_MAX_TERMS = 20_000  # of a product, before like terms are joined

_TOKEN = re.compile(
    r"\s*(?:"
    r"(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3}(?!\w))?)"
    r"|(?P<name>[^\W\d]\w*)"
    r"|(?P<string>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<sign>\*\*|//|[-+*/%(),])"
    r")",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_PLAIN_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"'}


@dataclass(frozen=True, slots=True)
class _Ratio:
    """top / bottom, where `bottom` is not the zero expression and is positive if constant."""

    top: Expr
    bottom: Expr

    @staticmethod
    def of(top: Expr, bottom: Expr = ONE) -> _Ratio:
        if bottom is ONE:
            return _Ratio(top, ONE)
        if not bottom.terms:
            raise ExpressionError(f"({top})/0: division by zero")
        exact = top.exact_quotient(bottom)
        if exact is not None:
            return _Ratio(exact, ONE)
        common = gcd(*(c for _, c in top.terms), *(c for _, c in bottom.terms))
        if bottom.terms[0][1] < 0:
            common = -common
        if common != 1:
            top, bottom = (Expr({m: c // common for m, c in e.terms}) for e in (top, bottom))
        return _Ratio(top, bottom)

    def __add__(self, other: _Ratio) -> _Ratio:
        if self.bottom == other.bottom:
            return _Ratio.of(self.top + other.top, self.bottom)
        return _Ratio.of(
            _product(self.top, other.bottom) + _product(other.top, self.bottom),
            _product(self.bottom, other.bottom),
        )

    def __neg__(self) -> _Ratio:
        return _Ratio(-self.top, self.bottom)

    def __mul__(self, other: _Ratio) -> _Ratio:
        return _Ratio.of(_product(self.top, other.top), _product(self.bottom, other.bottom))

    def __truediv__(self, other: _Ratio) -> _Ratio:
        return _Ratio.of(_product(self.top, other.bottom), _product(self.bottom, other.top))

    def floor(self) -> _Ratio:
        return self if self.bottom is ONE else _Ratio(self.top // self.bottom, ONE)

    def ceil(self) -> _Ratio:
        if self.bottom is ONE:
            return self
        if all(c > 0 for _, c in self.bottom.terms):
            return _Ratio(ceildiv(self.top, self.bottom), ONE)
        return _Ratio(-((-self.top) // self.bottom), ONE)

    def mod(self, other: _Ratio) -> _Ratio:
        return self + -(other * (self / other).floor())


def _operand(expr: Expr) -> str:
    return str(expr) if expr.is_simple else f"({expr})"


def _product(a: Expr, b: Expr) -> Expr:
    if len(a.terms) * len(b.terms) > _MAX_TERMS:
        raise ExpressionError(f"a product of {len(a.terms)} and {len(b.terms)} terms is too large")
    return a * b


def _extremum(pick: Callable[..., Expr], values: list[_Ratio]) -> _Ratio:
    bottoms = [v.bottom.as_int() for v in values]
    scale = 1
    for bottom in bottoms:
        if bottom is None:
            raise ExpressionError("Max and Min take integers or fractions with constant denominators")
        scale = scale * bottom // gcd(scale, bottom)
    tops = [v.top * (scale // (b or 1)) for v, b in zip(values, bottoms, strict=True)]
    return _Ratio.of(pick(*tops), Expr.const(scale))


def _floordiv(a: _Ratio, b: _Ratio) -> _Ratio:
    return (a / b).floor()


def _ceildiv(a: _Ratio, b: _Ratio) -> _Ratio:
    return (a / b).ceil()


_UNARY: dict[str, Callable[[_Ratio], _Ratio]] = {
    **dict.fromkeys(("floor", "Floor", "FloorToInt"), _Ratio.floor),
    **dict.fromkeys(("ceil", "ceiling", "Ceil", "CeilToInt"), _Ratio.ceil),
}
_BINARY: dict[str, Callable[[_Ratio, _Ratio], _Ratio]] = {
    **dict.fromkeys(("FloorDiv", "floordiv", "CleanDiv"), _floordiv),
    **dict.fromkeys(("CeilDiv", "ceildiv"), _ceildiv),
    **dict.fromkeys(("Mod", "mod", "PythonMod"), _Ratio.mod),
}
_EXTREMA: dict[str, Callable[..., Expr]] = {"Max": maximum, "max": maximum, "Min": minimum, "min": minimum}


class _Parser:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str, symbols: Callable[[str], Expr | None] | None) -> None:
        self.text = text
        self.symbols = symbols
        self.depth = 0
        self.at = 0
        self.tokens: list[tuple[str, str, int]] = []
        position, end = 0, len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None or match.lastgroup is None:
                raise self.error("is not part of an expression", position)
            kind = match.lastgroup
            if kind == "name" and self.tokens and self.tokens[-1][0] == "number":
                if match.start("name") == position:
                    raise self.error("a number runs into a name", position)
            self.tokens.append((kind, match[kind], match.start(kind)))
            position = match.end()
        self.tokens.append(("end", "", end))

    def error(self, what: str, position: int | None = None) -> ExpressionError:
        column = self.tokens[self.at][2] if position is None else position
        shown = self.text if len(self.text) <= 80 else self.text[:77] + "..."
        found = repr(self.text[column : column + 8].strip()) if self.text[column:].strip() else "the end"
        return ExpressionError(f"{shown!r}: {what} at column {column + 1} ({found})")

    def accept(self, *signs: str) -> str | None:
        kind, text, _ = self.tokens[self.at]
        if kind == "sign" and text in signs:
            self.at += 1
            return text
        return None

    def expect(self, sign: str) -> None:
        if self.accept(sign) is None:
            raise self.error(f"expected {sign!r}")

    def whole(self) -> Expr:
        value = self.sum()
        if self.tokens[self.at][0] != "end":
            raise self.error("expected an operator or the end")
        return self.integer(value)

    def integer(self, value: _Ratio) -> Expr:
        if value.bottom is not ONE:
            wanted = f"floor({_operand(value.top)}/{_operand(value.bottom)})"
            raise ExpressionError(f"{self.text!r}: not an integer for every size; write {wanted}")
        return value.top

    def sum(self) -> _Ratio:
        value = self.product()
        while (sign := self.accept("+", "-")) is not None:
            term = self.product()
            value = value + (term if sign == "+" else -term)
        return value

    def product(self) -> _Ratio:
        value = self.signed()
        while (sign := self.accept("*", "/", "//", "%")) is not None:
            factor = self.signed()
            if sign == "*":
                value = value * factor
            elif sign == "/":
                value = value / factor
            elif sign == "//":
                value = _floordiv(value, factor)
            else:
                value = value.mod(factor)
        return value

    def signed(self) -> _Ratio:
        negative = False
        while (sign := self.accept("+", "-")) is not None:
            negative ^= sign == "-"
        value = self.power()
        return -value if negative else value

    def power(self) -> _Ratio:
        value = self.primary()
        if self.accept("**") is None:
            return value
        kind, text, _ = self.tokens[self.at]
        if kind != "number" or not text.isdigit() or len(text) > 3 or int(text) > _MAX_POWER:
            raise self.error(f"expected a power between 0 and {_MAX_POWER}")
        if int(text) > 64 and len(value.top.terms) + len(value.bottom.terms) > 2:
            raise self.error("expected a power up to 64 of a sum")
        self.at += 1
        result = _Ratio(ONE, ONE)
        for _ in range(int(text)):
            result = result * value
        return result

    def primary(self) -> _Ratio:
        kind, text, position = self.tokens[self.at]
        if kind == "number":
            self.at += 1
            number = self.number(text, position)
            return _Ratio.of(Expr.const(number.numerator), Expr.const(number.denominator))
        if kind == "name":
            self.at += 1
            return self.call(text, position) if self.accept("(") else self.name(text, position)
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.error(f"more than {_MAX_DEPTH} nested parentheses")
        if self.accept("(") is None:
            raise self.error("expected a number, a name or '('")
        value = self.sum()
        self.expect(")")
        self.depth -= 1
        return value

    def number(self, text: str, position: int) -> Fraction:
        try:
            return Fraction(text)
        except ValueError as error:  # more digits than Python reads
            raise self.error("a number is too long", position) from error

    def name(self, name: str, position: int) -> _Ratio:
        found = Expr.symbol(name) if self.symbols is None else self.symbols(name)
        if found is None:
            raise self.error(f"unknown symbol {name!r}", position)
        return _Ratio(found, ONE)

    def call(self, function: str, position: int) -> _Ratio:
        if function == "sym":
            kind, text, start = self.tokens[self.at]
            if kind != "string":
                raise self.error("expected the quoted name of a symbol")
            self.at += 1
            self.expect(")")
            return self.name(self.unquoted(text, start), start)
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.error(f"more than {_MAX_DEPTH} nested parentheses")
        values = [self.sum()]
        while self.accept(","):
            values.append(self.sum())
        self.expect(")")
        self.depth -= 1
        if function in _UNARY and len(values) == 1:
            return _UNARY[function](values[0])
        if function in _BINARY and len(values) == 2:
            return _BINARY[function](values[0], values[1])
        if function in _EXTREMA:
            return _extremum(_EXTREMA[function], values)
        if function == "ModularIndexing" and len(values) == 3:
            return _floordiv(values[0], values[1]).mod(values[2])
        if function == "floor_f32":
            return self.scaled(values, position)
        known = sorted({*_UNARY, *_BINARY, *_EXTREMA, "ModularIndexing", "floor_f32", "sym"})
        if function not in known:
            raise self.error(f"unknown function {function!r}, expected one of {', '.join(known)}", position)
        raise self.error(f"{function} does not take {len(values)} arguments", position)

    def scaled(self, factors: list[_Ratio], position: int) -> _Ratio:
        for factor in factors[1:]:
            top = factor.top.as_int()
            if top is not None and top <= 0:
                raise self.error("floor_f32 takes a size and a scale above 0", position)
        try:
            return _Ratio(scaled_floor(*((factor.top, factor.bottom) for factor in factors)), ONE)
        except ExpressionError as error:
            raise self.error(f"floor_f32 of {error}", position) from error

    def unquoted(self, text: str, position: int) -> str:
        def plain(match: re.Match[str]) -> str:
            code = match[1]
            if code[0] in "xuU" and len(code) > 1:
                return chr(int(code[1:], 16))
            if code not in _PLAIN_ESCAPES:
                raise self.error(f"unknown escape \\{code} in a quoted name", position)
            return _PLAIN_ESCAPES[code]

        try:
            return _ESCAPE.sub(plain, text[1:-1])
        except (ValueError, OverflowError) as error:
            raise self.error("unknown escape in a quoted name", position) from error


def parse(text: str, symbols: Callable[[str], Expr | None] | None = None) -> Expr:
    """The expression that `text` denotes; `symbols` maps a name to its expression, None to refuse it.

    Without `symbols` every name is a symbol. Raises ExpressionError with the column.
    """
    return _Parser(text, symbols).whole()


def dim_from_text(text: str, known: Collection[str]) -> Expr:
    """The dim that a `dim_param` text means, where `known` are the names of existing symbols.

    A text is a name, `unk__3` and `DynamicDimension.0` as well as `M + N`, unless it reads as an
    expression of known symbols only. `2` stays a name as well: to ONNX Runtime such a dim is free.
    """
    if text in known or text.isidentifier():
        return Expr.symbol(text)
    try:
        expr = parse(text, lambda name: Expr.symbol(name) if name in known else None)
    except ExpressionError:
        return Expr.symbol(text)
    return Expr.symbol(text) if expr.is_const else expr
