"""Seeds for fuzzing: small valid files with the first rows of a dataset's own files.

A seed of a text file has its first lines, and one of Parquet its first rows. A seed of JSON or XML has the first
items of all lists, or of the outermost list, and is well-formed. A file and its companions are cut to the same
number of items.
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
FIELDS = 30  # an object with more fields is treated as a list


def seed(
    sources: Sequence[Sequence[Path]], encoding: str, joined: bytes, made: Callable[[bytes], tuple[int, int]]
) -> bytes:
    """Find the first small prefix of a source that yields a record, or else a row.

    Args:
        sources: each a file and its companions.
        joined: separator of the files' bytes.
        made: counts the records and rows of bytes.

    Raises:
        ValueError: no prefix that is small enough yields a row.
    """
    for wanted, limit, files, size, deep in product((0, 1), LIMITS, sources, SIZES, (True, False)):
        found = joined.join(beginning(file, size, encoding, deep) for file in files)
        if len(found) <= limit and made(found)[wanted]:
            return found
    raise ValueError(f"{sources[0][0]}: no beginning of at most {LIMITS[-1]} bytes makes a row")


def beginning(file: Path, size: int, encoding: str, deep: bool) -> bytes:
    """Cut a file to at most `size` lines, rows, or items of a list."""
    if file.suffix == ".parquet":
        sink = io.BytesIO()
        pq.write_table(pq.read_table(file).slice(0, size), sink)
        return sink.getvalue()
    if file.suffix == ".json":
        try:
            whole = json.loads(file.read_text(encoding=encoding))
        except ValueError:  # several concatenated objects
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
    """Cut each JSON list, or only the outermost if not `deep`, to `size` items; large objects count as lists."""
    if isinstance(value, list):
        return [shortened(item, size, deep) if deep else item for item in value[:size]]
    if isinstance(value, dict):
        listed = len(value) > FIELDS
        items = islice(value.items(), size if listed else None)
        return {key: item if listed and not deep else shortened(item, size, deep) for key, item in items}
    return value
