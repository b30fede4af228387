"""Guesses at CoNLL columns: which one has the tokens, which the tags, and which are unused."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from pipelines.drafting.formats.proposal import Proposal
from pipelines.drafting.names import beginning

TAG = re.compile(r"O|[BIESMUL][-_]\S+")


def conll(text: str) -> Iterator[Proposal]:
    """Propose options of `conll` for a text, each with a score and a reason."""
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    filled = [line for line in lines if line.strip()]
    blank = len(lines) - len(filled)
    if len(filled) < 4 or not blank:
        return
    for separator, sign in (("tab", "\t"), ("whitespace", None)):
        widths = Counter(len(line.split(sign)) for line in filled)
        width, count = widths.most_common(1)[0]
        if width < 2 or count < 0.6 * len(filled):
            continue
        rows = [line.split(sign) for line in filled if len(line.split(sign)) == width]
        others = [line for line in filled if len(line.split(sign)) != width]
        if sum(row[0].isdigit() for row in rows) > 0.8 * len(rows):  # numbered tokens
            others += [line for line in filled if line.startswith("#") and len(line.split(sign)) == width]
            rows = [row for row in rows if not row[0].startswith("#")]
        comments = _comments(others, rows)
        if comments is None:
            continue
        if header := _header(rows):
            comments, rows = [*comments, header + sign] if sign else [*comments, header], rows[1:]
        yield from _proposal(list(zip(*rows, strict=True)), separator, comments, blank, filled)
        return


def _header(rows: list[list[str]]) -> str:
    """Return the first value of the first row, if it names columns: one has tags in all rows but this one."""
    first, *below = rows
    tags = [at for at in range(len(first)) if _is_tags(tuple(row[at] for row in below))]
    named = [at for at in tags if not TAG.fullmatch(first[at])]
    return first[0] if named and not any(row[0].startswith(first[0]) for row in below) else ""


def _comments(others: list[str], rows: list[list[str]]) -> list[str] | None:
    """Return the prefixes of lines that are not rows, or None if they can't be told from tokens."""
    comments = _footers(others, rows) or {_beginning(line) for line in others}
    if any(row[0] == "-DOCSTART-" for row in rows):
        comments.add("-DOCSTART-")
    kept = [comment for comment in comments if comment]
    if len(kept) < len(comments) and len(others) > 0.02 * len(rows):
        return None
    if any(row[0].startswith(tuple(kept)) and row[0] not in kept for row in rows) and kept:
        return None
    return sorted(kept)


def _footers(others: list[str], rows: list[list[str]]) -> set[str]:
    """Return the prefixes of lines of one word, if they are labels of sentences: a, b or a#b."""
    if not others or any(len(line.split()) > 1 for line in others):
        return set()
    firsts = {line.split("#")[0] for line in others}
    shared = beginning(firsts)
    found = {shared} if len(shared) >= 4 else firsts
    return found if len(found) <= 12 and len(others) * 4 < len(rows) else set()


def _beginning(line: str) -> str:
    found = re.match(r"#[ \t]?|-DOCSTART-", line)
    return found[0] if found else ""


def _proposal(
    columns: list[tuple[str, ...]], separator: str, comments: list[str], blank: int, filled: list[str]
) -> Iterator[Proposal]:
    tags = [i for i, column in enumerate(columns) if _is_tags(column)]
    tokens = _tokens(columns, tags)
    if tokens is None or len(filled) < 2.5 * blank:
        return
    names = ["_"] * len(columns)
    names[tokens] = "token"
    for number, i in enumerate(tags, 1):
        names[i] = "tag" if len(tags) == 1 else f"tag{number}"
    if not tags:
        few = [i for i, c in enumerate(columns) if i != tokens and len(set(c)) <= 60 and len(set(c)) < len(c) / 4]
        few = [i for i in few if len(set(columns[i])) > 1]
        if not few and not _counts(columns[0]):
            return
        if few:
            names[few[-1]] = "tag"
    for i, column in enumerate(columns):
        if names[i] == "_" and _is_word_like(column):
            names[i] = f"column{i + 1}"
    options: dict[str, Any] = {"columns": names}
    if separator != "whitespace":
        options["separator"] = separator
    if comments:
        options["comments"] = comments
    score = 0.97 if tags else 0.6 if "tag" in names else 0.4
    why = f"blank lines separate blocks of lines with {len(names)} columns"
    yield Proposal(options, score, f"{why}; {_told(columns, tags, names)}")


def _told(columns: list[tuple[str, ...]], tags: list[int], names: list[str]) -> str:
    """Tell which column is like tags."""
    if tags:
        first = next((value for value in columns[tags[0]] if value != "O" and TAG.fullmatch(value)), "O")
        return f"column {tags[0] + 1} has tags such as {first!r}"
    if "tag" in names:
        return f"column {names.index('tag') + 1} has few different values"
    return "column 1 has numbers of tokens"


def _counts(column: tuple[str, ...]) -> bool:
    """Tell whether a column numbers the tokens of a sentence or a document."""
    numbers = [int(value) if re.fullmatch(r"\d{1,9}", value) else None for value in column]
    steps = [after - before for before, after in pairwise(numbers) if before is not None and after is not None]
    return len(steps) > 0.9 * len(column) and steps.count(1) > 0.8 * len(steps)


def _is_tags(column: tuple[str, ...]) -> bool:
    fit = sum(bool(TAG.fullmatch(value)) for value in column)
    return fit >= 0.98 * len(column) and len(set(column)) > 1


def _tokens(columns: list[tuple[str, ...]], tags: list[int]) -> int | None:
    """Return the column with the most distinct values that aren't numbers."""
    words = [
        (len(set(column)), -i)
        for i, column in enumerate(columns)
        if i not in tags and sum(not re.fullmatch(r"[\d:,.-]+", value) for value in column) > 0.5 * len(column)
    ]
    return -max(words)[1] if words else None


def _is_word_like(column: tuple[str, ...]) -> bool:
    """Tell whether a column may have a label for each sentence: it has few values, and more than one."""
    kinds = set(column)
    return 1 < len(kinds) <= 200 and len(kinds) < len(column) / 8 and not any(kind.isdigit() for kind in kinds)
