"""Find the lines of functions and classes that a page names as `path/file.py::name`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from ubert.schema.errors import UserError

REPOSITORY = Path(__file__).resolve().parents[2]
_NAMED = re.compile(r"`([\w/]+\.py)::([\w.]+)`")


def with_lines(markdown: str) -> str:
    """Add the line of each named symbol: `path/file.py::name` becomes `path/file.py:12` `name`."""
    return _NAMED.sub(lambda found: f"`{found[1]}:{line(found[1], found[2])}` `{found[2]}`", markdown)


def line(path: str, symbol: str) -> int:
    """Return the line where a function, class or method (`Class.method`) of a file begins.

    Raises:
        UserError: there is no such file or symbol.
    """
    file = REPOSITORY / path
    node: ast.AST | None = ast.parse(file.read_text(encoding="utf-8")) if file.is_file() else None
    for name in symbol.split("."):
        node = next((each for each in getattr(node, "body", []) if getattr(each, "name", None) == name), None)
    if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        raise UserError(f"a page names {path}::{symbol}, which does not exist; correct its name in docs/")
    return node.lineno
