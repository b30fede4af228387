"""Detects tables in text: separator, quoting and header, and names for columns without a header."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Any

from pipelines.drafting.formats.proposal import Proposal
from pipelines.drafting.names import is_key
from pipelines.sources.parsing.csv import records

Rows = list[list[str]]
SEPARATORS = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars"}
LINES = 20_000
_FASTTEXT = "__label__"  # begins each label in files for fastText
_EXCEL = re.compile(r"sep=[^\w\s]|sep=\t", re.IGNORECASE)  # tells Excel the separator
USUAL_COLUMN = re.compile(
    r"(gold_?)?(text|label|sentence\d?|sentence_?[ab12]|id|idx|index|premise|hypothesis|question\d?|answer|context"
    r"|class|category|intent|target|tweet|body|title|content|comment|score|quality|split|source|document|review)s?",
    re.IGNORECASE,
)


def tables(text: str) -> Iterator[Proposal]:
    """Propose options of `table` for a text, each with a score and a reason."""
    skip, begins = _preamble(text)
    if skip:
        for one in tables(text.split("\n", skip)[-1]):
            yield one._replace(options={**one.options, "skip": skip}, why=f"{begins}; {one.why}")
        return
    lines = [line for line in islice(text.replace("\r\n", "\n").split("\n"), LINES) if line]
    if len(lines) < 2:
        return
    quoted = text.count('"') >= 2
    for sign, word in SEPARATORS.items():
        if sign != "\t" and _are_tabbed(lines):  # the other signs are within columns
            break
        having = sum(sign in line for line in lines) / len(lines)
        if having < (0.3 if quoted else 0.9):
            continue
        rows = {"none": [line.split(sign) for line in lines]} if having >= 0.9 else {}
        stray = 0
        if quoted:
            rows["csv"], stray = _csv_rows(lines, sign)
            if not stray and _closes_fields(lines, sign):  # the quotes are CSV's: split fields would be cut
                rows.pop("none", None)
        plain_first = stray or (sign == "\t" and not _closes_fields(lines, sign))
        for place, quoting in enumerate(sorted(rows, reverse=bool(plain_first))):
            yield from _table(rows[quoting], sign, quoting, word, 0.01 * place)
    yield from _ragged(lines)
    yield from _repeated_sign(lines)
    yield from _labelled_lines(lines)


def _preamble(text: str) -> tuple[int, str]:
    """Return the number of lines before the table, and what they are: a line for Excel, or comments. These begin
    with `#` and don't have as many columns as the other lines."""
    lines = text[:100_000].lstrip("\ufeff").split("\n")[:-1]
    if lines and _EXCEL.fullmatch(lines[0].rstrip("\r")):
        return 1, "the first line tells Excel the separator"
    first = next((number for number, line in enumerate(lines) if not line.startswith("#")), 0)
    for sign in SEPARATORS if first else ():
        [(usual, _)] = Counter(line.count(sign) for line in lines[first:]).most_common(1)
        if usual and any(line.count(sign) == usual for line in lines[:first]):
            break
        if usual:
            return first, "the first line is a comment" if first == 1 else f"the first {first} lines are comments"
    return 0, ""


def _are_tabbed(lines: list[str]) -> bool:
    """Tell whether nearly all lines have the same number of tabs."""
    tabs, count = Counter(line.count("\t") for line in lines).most_common(1)[0]
    return tabs > 0 and count >= 0.97 * len(lines)


def _ragged(lines: list[str]) -> Iterator[Proposal]:
    """Detect lines of a text and a varying number of annotations after it, all separated by tabs."""
    rows = [line.split("\t") for line in lines if "\t" in line]
    widths = Counter(map(len, rows))
    if len(rows) < 0.97 * len(lines) or len(widths) < 3 or widths.most_common(1)[0][1] >= 0.9 * len(rows):
        return
    columns = names_of([row[: min(widths)] for row in rows])
    if "text" in columns[:-1]:
        options = {"columns": [*columns[:-1], "rest"], "rest": True}
        yield Proposal(options, 0.6, f"tabs separate {min(widths)} to {max(widths)} columns of each line")


def _repeated_sign(lines: list[str]) -> Iterator[Proposal]:
    """Detect a separator of several equal signs, which occurs once in each line: `text####label`."""
    for sign in dict.fromkeys(re.findall(r"(?:([^\w\s\"'.-])\1+)", lines[0])):
        for repeated in {match[0] for match in re.finditer(f"{re.escape(sign)}{{2,}}", lines[0])}:
            rows = [line.split(repeated) for line in lines]
            if sum(len(row) == 2 and all(row) for row in rows) >= 0.97 * len(rows):
                options = {"separator": repeated, "columns": names_of([row for row in rows if len(row) == 2])}
                yield Proposal(options, 0.9, f"{repeated!r} separates 2 columns in each line")


def _closes_fields(lines: list[str], sign: str) -> bool:
    """Tell whether quotes enclose whole fields, not only parts of them. Quotes within such a field are doubled."""
    edge = re.escape(sign)
    around = sum(bool(re.search(f'(^|{edge})"([^"]|"")*"({edge}|$)', line)) for line in lines)
    open_ = sum(line.count('"') % 2 for line in lines)
    return around > 0 and open_ <= 0.3 * around


def _csv_rows(lines: list[str], sign: str) -> tuple[Rows, int]:
    """Parse rows whose quoted fields may contain line ends. Also count the rows with a stray quote."""
    read = [fields for _, fields in records(io.StringIO("\n".join(lines) + "\n", newline=""), sign) if fields]
    rows = [fields for fields in read if isinstance(fields, list)]
    return rows, len(read) - len(rows)


def _table(rows: Rows, sign: str, quoting: str, word: str, less: float) -> Iterator[Proposal]:
    widths = Counter(map(len, rows))
    if not rows:
        return
    (width, count), *others = widths.most_common(2)
    if width < 2:
        return
    more = others[0][0] - width if others else 0
    optional = abs(more) if count < 0.97 * len(rows) and count + others[0][1] >= 0.97 * len(rows) else 0
    share = (count + (others[0][1] if optional else 0)) / len(rows)
    if share < 0.9:
        return
    narrow = min(width, width + more) if optional else width
    whole = [row[:narrow] for row in rows if len(row) >= narrow]
    options: dict[str, Any] = {} if sign == "\t" else {"separator": sign}
    if quoting == "csv":
        options["quoting"] = "csv"
    header, reason = header_of(whole)
    if header:
        options["header"] = True
    if not header or len(set(whole[0])) < width or not all(map(is_key, whole[0])):
        options["columns"] = names_of(whole[1:] if header else whole, whole[0] if header else None)
    if optional:
        options["columns"] = options.get("columns", whole[0])
        options["optional_columns"] = [f"optional{number}" for number in range(1, optional + 1)]
    score = 0.9 * share - less - (0.05 if sign in ";|" else 0) - (0.15 if width == 2 and sign == "," else 0)
    why = f"{word} separate {width} columns in {share:.0%} of the lines; {reason}"
    if not optional and (found := located(whole[1:] if header else whole)):
        yield from _with_mentions(options, whole, found, score, why)
    yield Proposal(options, score, why)


def _with_mentions(
    options: dict[str, Any], rows: Rows, found: list[tuple[int, int, int]], score: float, why: str
) -> Iterator[Proposal]:
    """Name the columns of mentions, and join lines that are equal in all other columns into one row."""
    columns = list(options.get("columns", rows[0]))
    if not options.get("header"):
        for number, places in enumerate(found, 1):
            for at, ending in zip(places, ("", "_start", "_end"), strict=True):
                columns[at] = f"mention{number}{ending}"
        options["columns"] = columns
    taken = {at for places in found for at in places}
    shared = [column for at, column in enumerate(columns) if at not in taken]
    texts = {tuple(value for at, value in enumerate(row) if at not in taken) for row in rows}
    if len(texts) < len(rows):
        grouped = {**options, "group": shared}
        yield Proposal(grouped, score + 0.01, f"{why}; lines with one text list its mentions")


def header_of(rows: Rows) -> tuple[bool, str]:
    """Tell whether the first row is a header, and what that was inferred from."""
    first, below = rows[0], rows[1:]
    if not below or any(len(name) > 60 or name.count(" ") > 4 for name in first):
        return False, "the first line looks like the others"
    if any(_is_number(name) for name in first if name):
        return False, "the first line has a number"
    usual = [name for name in first if USUAL_COLUMN.fullmatch(name.strip())]
    if len(usual) * 2 >= len(first):
        return True, f"the first line names columns ({', '.join(map(repr, usual[:3]))})"
    for i, name in enumerate(first):
        column = [row[i] for row in below]
        if not _is_number(name) and sum(map(_is_number, column)) > 0.95 * len(column):
            return True, f"column {name!r} has numbers"
        if name[:1] != "[" and all(value[:1] == "[" for value in column):
            return True, f"all values below {name!r} are lists"
        few = set(column)
        if name and len(few) <= 20 < len(column) and name not in few:
            return True, f"{name!r} does not occur among the values below it"
        if len(column) > 20 and all(len(value) > 3 * len(name) for value in column[:50]) and "_" in name:
            return True, f"all values below {name!r} are longer"
    return False, "the first line looks like the others"


def _is_number(value: str) -> bool:
    return bool(re.fullmatch(r"\s*-?\d+([.,]\d+)?(e-?\d+)?\s*", value))


def located(rows: Rows) -> list[tuple[int, int, int]]:
    """Return columns of words that another column contains, with the two columns of their start and end."""
    columns = list(zip(*rows, strict=True))
    numbers = [at for at, column in enumerate(columns) if all(re.fullmatch(r"\d{1,9}", value) for value in column)]
    found = []
    for start, end in pairwise(numbers):
        if end != start + 1:
            continue
        sizes = [int(b) - int(a) for a, b in zip(columns[start], columns[end], strict=True)]
        for words in [at for at in range(start - 1, -1, -1) if at not in numbers]:
            fit = sum(size == len(word) for size, word in zip(sizes, columns[words], strict=True))
            if fit >= 0.95 * len(sizes) and any(_holds(other, columns[words]) for other in columns):
                found.append((words, start, end))
                break
    return found


def _holds(texts: tuple[str, ...], words: tuple[str, ...]) -> bool:
    both = list(zip(texts, words, strict=True))
    return sum(len(word) < len(text) and word in text for text, word in both) >= 0.95 * len(both)


def names_of(rows: Rows, given: list[str] | None = None) -> list[str]:
    """Name columns by their content: text, label, number. Given names stay if a path can have them."""
    names: list[str] = []
    kinds = [_kind(column) for column in zip(*rows, strict=True)]
    for i, name in enumerate(kinds):
        if given and is_key(given[i]) and given[i] not in names:
            names.append(given[i])
            continue
        if name == "label" and kinds.count("label") > 1:  # none of them is clearly the label
            names.append(f"label{sum(other.startswith('label') for other in names) + 1}")
            continue
        taken = sum(re.fullmatch(rf"{name}\d*", other) is not None for other in names)
        number = i + 1 if name == "column" else taken + 1 if taken else ""
        names.append(f"{name}{number}")
    return names


def _kind(column: tuple[str, ...]) -> str:
    distinct, size = len(set(column)), len(column)
    words = sum(value.count(" ") for value in column) / size
    letters = sum(map(len, column)) / size
    if sum(map(_is_number, column)) > 0.95 * size and distinct > 30:
        return "score" if any("." in value for value in column) else "id"
    if words >= 2.5 or (letters > 12 and not "".join(column[:20]).isascii()):
        return "text"
    if distinct <= max(2, min(size / 3, 120)) and letters < 40:
        return "label" if distinct > 1 else "column"
    return "id" if distinct > 0.9 * size and words < 0.3 else "text" if words >= 1 else "column"


def _labelled_lines(lines: list[str]) -> Iterator[Proposal]:
    """Detect lines of a label, a separator and a text."""
    if not all(" " in line or "\t" in line for line in lines[:200]):
        return
    for sign in (" ", "\t", ","):
        firsts = [line.partition(sign)[0] for line in lines if sign in line]
        distinct = len(set(firsts))
        if len(firsts) < 0.99 * len(lines) or not 2 <= distinct <= 150 or distinct > len(lines) / 4:
            continue
        marked = all(first.startswith(_FASTTEXT) for first in firsts)
        if marked and any(_FASTTEXT in line.removeprefix(_FASTTEXT) for line in lines):
            return  # several labels in a line, which no option of `table` separates from the text
        short = max(map(len, firsts)) <= 40 and not _are_words(firsts)
        if marked or short:
            options = {**({} if sign == "\t" else {"separator": sign}), "columns": ["label", "text"], "rest": True}
            score = 0.95 if marked else 0.7
            yield Proposal(options, score, f"each line begins with one of {distinct} labels")


def _are_words(firsts: list[str]) -> bool:
    """Tell whether many lines begin with common words, as sentences do."""
    common = {"the", "a", "i", "it", "this", "what", "is", "in", "and", "how", "he", "we", "there"}
    return sum(first.lower() in common for first in firsts) > 0.1 * len(firsts)
