"""Page data -> one HTML file: template, style and script modules put together, nothing loaded from outside.

The script is written as modules and joined in the order in which they import each other, so that the file
opens from a disk, where browsers load no modules. What modules export must have different names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from onnx_symmem.report.analysis import Analysis
from onnx_symmem.report.html.data import page_data

__all__ = ["joined_script", "render_page"]

MODULES = (
    "exact", "words", "model", "pairs", "controls", "timeline", "alive", "map", "search", "growth", "page",
)  # fmt: skip
"""Script modules; each imports only from those before it."""

_IMPORT = re.compile(r"^import \{[^}]*\} from \"\./(?P<module>\w+)\.js\";\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?:const|function|class) (?P<names>\w+|\[[^\]]*\])", re.MULTILINE)
_KINDS = {
    "equal": "both sides are equal in every run",
    "equal_or_one": "equal, or one side is 1",
    "nonempty": "the tensor is not empty",
    "declared": "the file says so; not used",
    "adopted": "the file says so; used, as nothing better is known",
    "default": "an input keeps the value it has by default",
    "never": "contradiction: the node cannot run",
    "contradicted": "contradiction: the file is wrong; not used",
}


def render_page(analysis: Analysis, against: Analysis | None = None) -> str:
    """The page of a model, held against another where one is given."""
    from jinja2 import Environment, StrictUndefined

    data = page_data(analysis, against)
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    members = [str(member) for member in analysis.peak.members]
    return environment.from_string(_resource("page.html.j2")).render(
        model=data["model"],
        against=data["against"],
        tool=data["tool"],
        order="the file's" if analysis.execution_order == "priority" else "ONNX Runtime's default",
        notices=analysis.notices(),
        kinds=_KINDS,
        formula=members[0] if len(members) == 1 else f"max({', '.join(members)})",
        style=_resource("page.css"),
        script=joined_script(),
        data=_embedded(data),
    )


def joined_script(modules: Sequence[str] = MODULES) -> str:
    """Modules as one script: each in a function of its own, with what it exports as constants outside."""
    parts = []
    for name in modules:
        source = _resource(f"js/{name}.js")
        exported = ", ".join(
            found for match in _EXPORT.finditer(source) for found in re.findall(r"\w+", match["names"])
        )
        body = _EXPORT.sub(lambda match: match[0].removeprefix("export "), _IMPORT.sub("", source)).strip()
        parts.append(f"const {{ {exported} }} = (() => {{\n{body}\nreturn {{ {exported} }};\n}})();\n\n")
    return "".join(parts)


def _embedded(data: Any) -> str:
    """JSON that can stand inside a script element, whatever names a model has."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _resource(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
