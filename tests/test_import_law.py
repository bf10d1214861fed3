"""The one-way law: a room imports only rooms to its left, and importing the package costs nothing."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from onnx_symmem.cli.main import VERBS

ROOT = Path(__file__).resolve().parents[1]
# `api` stands for onnx_symmem/__init__.py and onnx_symmem/api.py, which gather the rooms for users.
LAW = [
    "errors",
    "expr",
    "graph",
    "shapes",
    "memory",
    "order",
    "remat",
    "rewrite",
    "run",
    "report",
    "api",
    "integrations",
    "cli",
]
CHECKOUT_ONLY = ("models", "benchmarks", "documentation", "tests", "cli")
HEAVY = (
    "numpy",
    "onnx",
    "onnxruntime",
    "onnx_graphsurgeon",
    "sympy",
    "rich",
    "jinja2",
    "ortools",
    "yaml",
    "joblib",
    "PIL",
    "olive",
)


# ------------------------------------------------------------------------------------------------ the law


def package_files() -> dict[str, Path]:
    """Every module that gets installed: dotted name -> file."""
    files = {}
    for base, folder in (("onnx_symmem", ROOT / "onnx_symmem"), ("onnx_symmem.cli", ROOT / "cli")):
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            files[".".join((base, *parts)).removesuffix(".__init__")] = path
    return files


def room_of(module: str) -> str:
    """The room of a dotted name inside onnx_symmem."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in LAW else "api"


def imported_names(tree: ast.AST, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of every import, at any depth, relative ones resolved."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                keep = len(parts) - node.level + is_package
                base = ".".join([*parts[:keep], *filter(None, [node.module])])
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"
        elif isinstance(node, ast.Call) and _called_name(node) in ("import_module", "__import__"):
            for argument in node.args[:1]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield node.lineno, argument.value


def _called_name(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def breaches(source: str, module: str, is_package: bool = False) -> list[str]:
    """Every import in the source that the law forbids, one line each."""
    room = room_of(module)
    found = []
    for line, name in imported_names(ast.parse(source), module, is_package):
        top = name.split(".")[0]
        if top in CHECKOUT_ONLY:
            found.append(f"{module}:{line}: imports {name}, which is not installed")
        elif top == "onnx_symmem" and name != "onnx_symmem.__version__":
            target = room_of(name)
            if LAW.index(target) > LAW.index(room):
                found.append(f"{module}:{line}: {room} imports {name}; {target} stands to its right")
    return found


def test_every_import_of_the_package_obeys_the_law() -> None:
    files = package_files()
    assert "onnx_symmem.errors" in files
    assert "onnx_symmem.cli.main" in files
    found = [
        breach
        for module, path in files.items()
        for breach in breaches(path.read_text(encoding="utf-8"), module, path.name == "__init__.py")
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("onnx_symmem.expr.decide", "import onnx_symmem.graph"),
        ("onnx_symmem.expr.decide", "from onnx_symmem import graph"),
        ("onnx_symmem.expr.decide", "from onnx_symmem.shapes.engine import infer"),
        ("onnx_symmem.expr.decide", "def f():\n    from onnx_symmem.run import measure"),
        ("onnx_symmem.expr.decide", "if TYPE_CHECKING:\n    import onnx_symmem.memory.peak as peak"),
        ("onnx_symmem.expr.decide", "from ..graph import view"),
        ("onnx_symmem.expr.decide", "from .. import graph"),
        ("onnx_symmem.shapes.rules.conv", "from ...memory import sizes"),
        ("onnx_symmem.expr.decide", "importlib.import_module('onnx_symmem.cli.main')"),
        ("onnx_symmem.errors", "import onnx_symmem.expr"),
        ("onnx_symmem.report.text", "import onnx_symmem"),
        ("onnx_symmem.report.text", "from onnx_symmem import optimize"),
        ("onnx_symmem.api", "import onnx_symmem.cli.options"),
        ("onnx_symmem.api.running", "import onnx_symmem.integrations.olive"),
        ("onnx_symmem.integrations.olive", "from onnx_symmem.cli.dims import parse_dims"),
        ("onnx_symmem.cli.run", "import cli.options"),
        ("onnx_symmem.cli.run", "from models import build"),
    ],
)
def test_a_breach_is_seen(module: str, source: str) -> None:
    assert len(breaches(source, module)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("onnx_symmem.graph.view", "from onnx_symmem.graph.load import load"),
        ("onnx_symmem.graph.view", "from .load import load"),
        ("onnx_symmem.shapes.rules.conv", "from .. import engine"),
        ("onnx_symmem.memory.peak", "from onnx_symmem.errors import InputError"),
        ("onnx_symmem.report.data", "from onnx_symmem import __version__"),
        ("onnx_symmem.api", "def f():\n    from onnx_symmem.report import data"),
        ("onnx_symmem.cli.run", "import onnx_symmem"),
        ("onnx_symmem.expr.decide", "import numpy.linalg"),
    ],
)
def test_a_lawful_import_is_let_through(module: str, source: str) -> None:
    assert breaches(source, module) == []


def test_a_package_resolves_relative_imports_from_itself() -> None:
    assert breaches("from .conv import rule", "onnx_symmem.shapes.rules", is_package=True) == []
    assert len(breaches("from ..memory import sizes", "onnx_symmem.shapes", is_package=True)) == 1


def test_every_folder_of_the_package_is_a_known_room() -> None:
    rooms = {path.parent.name for path in (ROOT / "onnx_symmem").glob("*/__init__.py")}
    assert rooms <= set(LAW)


def test_pyproject_lists_every_package() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = set(settings["tool"]["setuptools"]["packages"])
    folders = {module for module, path in package_files().items() if path.name == "__init__.py"}
    assert listed == folders


def test_every_folder_with_modules_is_a_package() -> None:
    files = package_files().values()
    assert [path for path in files if not (path.parent / "__init__.py").exists()] == []


# ------------------------------------------------------------------------------------------------ the cost


def modules_after(statement: str) -> set[str]:
    """Names of the top-level modules a fresh interpreter holds after the statement."""
    script = f"import sys, json\n{statement}\nprint('\\n' + json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    return {name.split(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


@pytest.mark.parametrize(
    "statement",
    [
        "import onnx_symmem",
        "import onnx_symmem; dir(onnx_symmem); onnx_symmem.__version__",
        "from onnx_symmem.cli.main import main; assert main(['--help']) == 0",
        "from onnx_symmem.cli.main import main; assert main(['--version']) == 0",
        "from onnx_symmem.cli.main import main; assert main(['no-such-verb']) == 2",
    ],
)
def test_a_cheap_statement_imports_nothing_heavy(statement: str) -> None:
    assert modules_after(statement).isdisjoint(HEAVY)


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_imports_nothing_heavy(verb: str) -> None:
    done = modules_after(f"from onnx_symmem.cli.main import main; assert main(['{verb}', '--help']) == 0")
    assert done.isdisjoint(HEAVY)
    assert "click" in done


def test_completion_imports_nothing_heavy(tmp_path: Path) -> None:
    ask = (
        "import os; os.environ.update(_ONNX_SYMMEM_COMPLETE='bash_complete', COMP_CWORD='2', "
        "COMP_WORDS='onnx-symmem\\noptimize\\n--max')\n"
        "from onnx_symmem.cli.main import main\n"
        "try:\n    main([])\nexcept SystemExit as end:\n    assert end.code == 0"
    )
    assert modules_after(ask).isdisjoint(HEAVY)


def test_the_public_names_are_listed_but_not_loaded() -> None:
    import onnx_symmem

    assert set(onnx_symmem.__all__) <= set(dir(onnx_symmem))
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        _ = onnx_symmem.no_such_name
