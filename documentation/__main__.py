"""`python -m documentation`: write the reference pages under docs/reference."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from documentation.api_reference import api_page
from documentation.cli_reference import cli_page

__all__ = ["PAGES", "main"]

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
PAGES: Mapping[str, Callable[[], str]] = {"cli.md": cli_page, "api.md": api_page}


def main() -> int:
    """Write the pages that have changed, and name them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        path, text = FOLDER / name, page()
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"{path}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
