"""Mutants of source files: mutmut's small changes, a draw from all of them, and the text of a changed file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from heapq import nsmallest
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from libcst import FunctionDef, Module
from mutmut.mutation.file_mutation import Mutation, create_mutations, deep_replace


@dataclass(frozen=True)
class Mutant:
    """A change of consecutive lines of a file.

    Attributes:
        line: number of the first line, from 1.
        before: the lines as they are.
        after: the lines that replace them.
    """

    path: str
    line: int
    before: str
    after: str

    def place(self, lines: list[str]) -> int | None:
        """Return the index of the first line. If the lines have moved, the nearest equal ones count."""
        count = len(self.before.splitlines())
        starts = range(len(lines) - count + 1)
        found = [at for at in starts if "".join(lines[at : at + count]) == self.before]
        return min(found, key=lambda at: abs(at + 1 - self.line), default=None)


class Change(NamedTuple):
    """A mutant as mutmut has it."""

    path: str
    number: int
    module: Module
    mutation: Mutation


def draw(modules: tuple[str, ...], count: int, key: str) -> list[Mutant]:
    """Draw mutants of the functions in these folders, in order of a hash. More mutants include those of fewer."""

    def rank(change: Change) -> bytes:
        return sha256(f"{key}/{change.path}/{change.number}".encode()).digest()

    files = sorted(str(path) for module in modules for path in Path(module).rglob("*.py"))
    return [_mutant(change) for change in nsmallest(count, _changes(files), rank)]


def _changes(files: list[str]) -> Iterator[Change]:
    """List mutmut's changes, those of functions alone: it keeps class attributes, too, but never tries them."""
    total = 0
    for path in files:
        module, mutations, _, _ = create_mutations(path, Path(path).read_text(encoding="utf-8"))
        of_functions = [one for one in mutations if isinstance(one.contained_by_top_level_function, FunctionDef)]
        total += len(of_functions)
        for number, mutation in enumerate(of_functions):
            yield Change(path, number, module, mutation)
    print(f"{total:,} mutants of {len(files)} files", flush=True)


def _mutant(change: Change) -> Mutant:
    changed = deep_replace(change.module, change.mutation.original_node, change.mutation.mutated_node)
    assert isinstance(changed, Module)
    before, after = (one.code.splitlines(keepends=True) for one in (change.module, changed))
    start = _equal(before, after)
    end = _equal(before[start:][::-1], after[start:][::-1])
    texts = ("".join(lines[start : len(lines) - end]) for lines in (before, after))
    return Mutant(change.path, start + 1, *texts)


def _equal(some: list[str], others: list[str]) -> int:
    """Count the equal lines at the start of two texts."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(some, others, strict=False))))
