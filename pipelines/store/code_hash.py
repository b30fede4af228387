"""Hash the code that computes a result, so that the result is computed again if the code changes."""

from __future__ import annotations

import ast
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from pipelines.sources import file_hash
from ubert.schema.manifest import fingerprint

OURS = ("pipelines", "ubert")


def code_hash(*modules: str) -> str:
    """Return 16 hex digits: the hash of the source text of `modules` and of our modules that they import,
    directly or indirectly."""
    hashes: dict[str, str] = {}
    waiting = [*modules]
    while waiting:
        name = waiting.pop()
        path = _path(name)
        if path and name not in hashes:
            hashes[name] = file_hash(path)
            waiting += _imports(path.read_bytes())
    return fingerprint(hashes)


def _path(name: str) -> Path | None:
    try:
        found = find_spec(name)
    except ModuleNotFoundError:  # the name of a function or class in a module
        return None
    return Path(found.origin) if found and found.origin else None


@cache
def _imports(code: bytes) -> list[str]:
    """Return the names that a module imports from our packages: modules, and their functions and classes."""
    found: list[str] = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in OURS:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found
