"""Which tests run a statement, by a recording of `record.py`."""

from __future__ import annotations

import ast
import json
from collections import defaultdict
from pathlib import Path

from coverage import CoverageData
from record import LINES, SECONDS, file_of


class Nearest:
    """A recording: the tests that passed, their seconds, and the lines that each of them ran."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = json.loads(SECONDS.read_bytes())
        self.tests = defaultdict(set)
        for test in self.seconds:
            self.tests[file_of(test)].add(test)
        self.data = CoverageData(str(LINES))
        self.data.read()

    def of(self, path: str, first: int, last: int) -> list[str]:
        """Return the tests that run statements on these lines, the quickest first."""
        contexts = self.data.contexts_by_lineno(path)
        lines = statements(Path(path).read_text(encoding="utf-8"), first, last)
        names = {name for line in lines for name in contexts.get(line, ())}
        found = {test for name in names for test in self.tests.get(name, {name})} & self.seconds.keys()
        return sorted(found, key=lambda test: (self.seconds[test], test))


def statements(source: str, first: int, last: int) -> set[int]:
    """Return the lines of the statements that hold these lines.

    Of a block only its head counts, but the whole of a function counts for its head, which runs when its module is
    imported.
    """
    lines: set[int] = set()
    for line in range(first, last + 1):
        around = [one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.stmt)]
        around = [one for one in around if one.lineno <= line <= (one.end_lineno or line)]
        if around:
            inner = max(around, key=lambda one: (one.lineno, -(one.end_lineno or 0)))
            body = getattr(inner, "body", None)
            is_block = body and not isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
            end = body[0].lineno - 1 if is_block else inner.end_lineno
            lines.update(range(inner.lineno, max(inner.lineno, end or line) + 1))
    return lines
