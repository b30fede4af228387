"""What mutations begin with: small whole files, of the first rows of a dataset's own.

A file of lines has its first lines; JSON and XML the first items of their lists (of all, or of the outermost), and
all brackets closed; Parquet its first rows. Of a file and those beside it the same number is taken.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from itertools import islice, product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pyarrow.parquet as pq

SIZES = (5, 2, 1, 20, 100, 1000, 10_000)  # items of a list, lines or rows
LIMITS = (6_000, 120_000)  # bytes of a seed
FIELDS = 30  # an object with more is a list by other means


def seed(
    sources: Sequence[Sequence[Path]], encoding: str, joined: bytes, made: Callable[[bytes], tuple[int, int]]
) -> bytes:
    """The first small beginning of a source, a file and those beside it, of which a record is made; or else a row.

    Args:
        sources: each a file and those beside it.
        made: how many records and rows are made of bytes.

    Raises:
        ValueError: none that is small enough makes a row.
    """
    for wanted, limit, files, size, deep in product((0, 1), LIMITS, sources, SIZES, (True, False)):
        found = joined.join(beginning(file, size, encoding, deep) for file in files)
        if len(found) <= limit and made(found)[wanted]:
            return found
    raise ValueError(f"{sources[0][0]}: no beginning of at most {LIMITS[-1]} bytes makes a row")


def beginning(file: Path, size: int, encoding: str, deep: bool) -> bytes:
    """A file of no more than so many lines, rows, or items of a list."""
    if file.suffix == ".parquet":
        sink = io.BytesIO()
        pq.write_table(pq.read_table(file).slice(0, size), sink)
        return sink.getvalue()
    if file.suffix == ".json":
        try:
            whole = json.loads(file.read_text(encoding=encoding))
        except ValueError:  # several objects in sequence
            pass
        else:
            return json.dumps(shortened(whole, size, deep), ensure_ascii=False).encode(encoding)
    if file.suffix == ".xml":
        root = ET.parse(file).getroot()
        for element in list(root.iter()) if deep else [root]:
            for child in element[size:]:
                element.remove(child)
        return ET.tostring(root, encoding=encoding)
    with file.open("rb") as lines:
        return b"".join(islice(lines, size))


def shortened(value: Any, size: int, deep: bool) -> Any:
    """JSON with so many items of each list and of each object that is one; or, not `deep`, of the outermost."""
    if isinstance(value, list):
        return [shortened(item, size, deep) if deep else item for item in value[:size]]
    if isinstance(value, dict):
        listed = len(value) > FIELDS
        items = islice(value.items(), size if listed else None)
        return {key: item if listed and not deep else shortened(item, size, deep) for key, item in items}
    return value
