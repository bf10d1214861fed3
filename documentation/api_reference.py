"""The public functions as they explain themselves -> docs/reference/api.md.

Read from the source, not imported: nothing heavy is loaded, and annotations are shown as they are written.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["CALLED", "api_page"]

ROOT = Path(__file__).resolve().parents[1]
CALLED = {
    "dim": "domain",
    "ep": "provider",
    "input": "inputs",
    "output": "out",
    "write": "out",
    "set": "changes",
    "no_verify": "verify",
    "explain_order": "explain",
    "count": "counts",
}
"""Options of the command that are called something else in Python, the same in every verb."""

_HEAD = """# The Python API

*Written by `make docs` from the docstrings.*

{module}

## The same as on the command line

Every verb has a function of its name, whose parameters are called like its options, `--verify-at` is
`verify_at`, with these exceptions:

{called}

Also at the top of the package: {lifted}.
`run`, `shapes` and `report` are rooms of the package there, so these three are `api.run`, `api.shapes` and
`api.report`.
"""


def api_page() -> str:
    """The page, in Markdown."""
    package = _parse("onnx_symmem.api")
    doc = inspect.cleandoc(ast.get_docstring(package) or "")
    names = _exported(package)
    lifted = [name for name in _exported(_parse("onnx_symmem")) if not name.startswith("_")]
    table = ["| option | parameter |", "| --- | --- |"]
    table += [f"| `--{option.replace('_', '-')}` | `{name}` |" for option, name in CALLED.items()]
    head = _HEAD.format(
        module=_linked(doc),
        called="\n".join(table),
        lifted=", ".join(f"`{name}`" for name in lifted),
    )
    places = _places(package)
    return "\n\n".join([head.strip(), *(_section(name, places[name]) for name in names)]) + "\n"


def _parse(module: str) -> ast.Module:
    path = ROOT / Path(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def _exported(module: ast.Module) -> list[str]:
    for node in module.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return list(ast.literal_eval(node.value))
    raise LookupError("no __all__")


def _places(module: ast.Module) -> dict[str, str]:
    """The module that each imported name comes from."""
    return {
        alias.asname or alias.name: node.module or ""
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _section(name: str, module: str) -> str:
    tree = _parse(module)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return _function(node)
        if isinstance(node, ast.ClassDef) and node.name == name:
            return _class(node)
    return _section(name, _places(tree)[name])


def _function(node: ast.FunctionDef) -> str:
    parts = [f"## {node.name}", f"```python\n{_signature(node)}\n```"]
    return "\n\n".join([*parts, *_words(node)])


def _signature(node: ast.FunctionDef) -> str:
    given = node.args
    rows = []
    plain = [None] * (len(given.args) - len(given.defaults)) + list(given.defaults)
    for argument, default in zip(given.args, plain, strict=True):
        rows.append(_argument(argument, default))
    if given.kwonlyargs:
        rows.append("*")
    for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        rows.append(_argument(argument, default))
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    flat = f"{node.name}({', '.join(rows)}){result}"
    if len(flat) <= 100:
        return flat
    return f"{node.name}(\n" + "".join(f"    {row},\n" for row in rows) + f"){result}"


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    text = argument.arg
    if argument.annotation is not None:
        text += f": {ast.unparse(argument.annotation)}"
    return text if default is None else f"{text} = {ast.unparse(default)}"


def _class(node: ast.ClassDef) -> str:
    fields = [
        f"    {n.target.id}: {ast.unparse(n.annotation)}"
        for n in node.body
        if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
    ]
    methods = [
        f"    {_signature(n)}"
        for n in node.body
        if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")
    ]
    code = "\n".join([f"class {node.name}:", *fields, *methods])
    return "\n\n".join([f"## {node.name}", f"```python\n{code}\n```", *_words(node)])


def _words(node: ast.FunctionDef | ast.ClassDef) -> Iterator[str]:
    """Paragraphs of a docstring; one that begins with a parameter is a table of them."""
    names = (
        {a.arg for a in (*node.args.args, *node.args.kwonlyargs)}
        if isinstance(node, ast.FunctionDef)
        else set()
    )
    for paragraph in inspect.cleandoc(ast.get_docstring(node) or "").split("\n\n"):
        begin = paragraph.partition(":")[0]
        if begin not in names:
            text = re.sub(r"\b(Errors|Source): ", r"**\1.** ", " ".join(paragraph.split()))
            yield _linked(text)
            continue
        rows = ["| parameter | meaning |", "| --- | --- |"]
        for line in re.split(r"\n(?! )", paragraph):
            name, _, text = line.partition(": ")
            said = " ".join(text.split()).replace("|", "\\|")
            rows.append(f"| `{name}` | {_linked(said)} |")
        yield "\n".join(rows)


def _linked(text: str) -> str:
    """Names of pages as links to them."""
    return re.sub(r"\bdocs/(\w+)\.md", r"[\1](../\1.md)", text)
