"""XML files. Their elements become JSON-like values, so that paths of a spec can select them:

    <item id="7"><name>Anna</name><name>Ann</name><at from="0"/></item>

becomes {"id": "7", "name": ["Anna", "Ann"], "at": [{"from": "0"}]}:

- An element without attributes and child elements becomes a string, its unchanged text.
- Any other element becomes an object. It has the attributes by name, and a list of child elements for each name.
  If the element contains text besides white space, `#text` is all this text without tags.
- An attribute with the name of a child element gets the key `@name`.
- Namespaces are left out. If attributes then have the same name, the one without a namespace is kept, or else the
  last.

`rows` begins at the outermost element: `item[]` are the items in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipelines.sources import Example, RawRow, Slice
from pipelines.sources.parsing.rows import RowOptions, rows_of
from pipelines.sources.parsing.xml import Element, flat, root
from ubert.schema.record import Reject


class Options(RowOptions):
    """Where the rows are."""


EXAMPLE = Example(
    {"items.xml": '<list>\n<item id="7"><name>Anna</name><name>Ann</name><at from="0"/></item>\n</list>\n'},
    {"rows": ["item[]"]},
)


def read(piece: Slice, options: Options) -> Iterator[RawRow | Reject]:
    """Yield a row for each element at the paths `rows`.

    Raises:
        UserError: the file has another encoding, is not XML that can be read safely, or lacks a path.
    """
    yield from rows_of(piece, _value(root(piece)), options)


def _value(element: Element) -> Any:
    inner = element.children()
    if not inner and not element.attributes:
        return flat(element)[0]
    lists: dict[str, list[Any]] = {}
    for child in inner:
        lists.setdefault(child.name, []).append(_value(child))
    value: dict[str, Any] = {f"@{k}" if k in lists else k: text for k, text in element.attributes.items()}
    if any(isinstance(part, str) and not part.isspace() for part in element.parts):
        value["#text"] = flat(element)[0]
    return {**value, **lists}
