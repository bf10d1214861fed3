"""Which rule infers which op: rules register themselves by (domain, op) when their module is imported."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx_symmem.shapes.context import NodeContext

__all__ = ["MICROSOFT", "ML", "NCHWC", "Rule", "find_rule", "registered", "rule"]

Rule = Callable[["NodeContext"], None]

ML = "ai.onnx.ml"
MICROSOFT = "com.microsoft"
NCHWC = "com.microsoft.nchwc"

_RULES: dict[tuple[str, str], Rule] = {}


def rule(*ops: str, domain: str = "") -> Callable[[Rule], Rule]:
    """Register the decorated function for ops of a domain; it sets the outputs on the node's context."""

    def register(function: Rule) -> Rule:
        for op in ops:
            if (domain, op) in _RULES:
                raise ValueError(f"two rules for {domain}.{op}: {_RULES[domain, op]} and {function}")
            _RULES[domain, op] = function
        return function

    return register


@cache
def _load_all() -> None:
    package = importlib.import_module("onnx_symmem.shapes.rules")
    for module in sorted(info.name for info in pkgutil.iter_modules(package.__path__)):
        importlib.import_module(f"onnx_symmem.shapes.rules.{module}")


def find_rule(domain: str, op: str) -> Rule | None:
    """The rule for an op, None where there is none."""
    _load_all()
    return _RULES.get((domain, op))


def registered() -> tuple[tuple[str, str], ...]:
    """All (domain, op) pairs with a rule, sorted."""
    _load_all()
    return tuple(sorted(_RULES))
