"""XML: elements as values by path. A hostile file is one clear error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.sources import RawRow, Slice
from pipelines.sources.data_formats.xml import Options, read
from pipelines.sources.parsing.xml import DEEPEST, flat, root
from ubert.schema.errors import UserError
from ubert.schema.record import Reject


def piece(folder: Path, content: bytes, encoding: str = "utf-8") -> Slice:
    (folder / "x.xml").write_bytes(content)
    return Slice(str(folder), "x.xml", 0, len(content), 1, encoding, "0" * 64)


def rows(folder: Path, content: bytes, **options: Any) -> list[RawRow | Reject]:
    return list(read(piece(folder, content), Options(**options)))


def contents(found: list[RawRow | Reject]) -> list[dict[str, Any]]:
    assert not [row for row in found if isinstance(row, Reject)]
    return [row.content for row in found if isinstance(row, RawRow)]


SENTENCES = b"""<?xml version="1.0"?>
<set>
  <sentence id="1"><text>Good &amp; cheap
food </text><terms><term from="0" to="4">a</term><term from="7"/></terms></sentence>
  <sentence id="2"><text></text><!-- nothing --></sentence>
</set>
"""


def test_elements_are_values_and_their_place_is_a_path(tmp_path: Path) -> None:
    found = rows(tmp_path, SENTENCES, rows=["sentence[]"])
    assert contents(found) == [
        {
            "id": "1",
            "text": ["Good & cheap\nfood "],
            "terms": [{"term": [{"from": "0", "to": "4", "#text": "a"}, {"from": "7"}]}],
        },
        {"id": "2", "text": [""]},
    ]
    assert [row.locator for row in found if isinstance(row, RawRow)] == ["x.xml#sentence.0", "x.xml#sentence.1"]


def test_rows_within_rows_take_along_what_is_around_them(tmp_path: Path) -> None:
    found = rows(tmp_path, SENTENCES, rows=["sentence[].terms?[].term[]"], enclosing=["text"])
    assert [(row["from"], row["text"]) for row in contents(found)] == [
        ("0", ["Good & cheap\nfood "]),
        ("7", ["Good & cheap\nfood "]),
    ]


def test_mixed_text_keeps_its_order_without_its_tags(tmp_path: Path) -> None:
    content = b"<d><s n='1'>The <b>old <i>red</i></b> dog</s></d>"
    (row,) = contents(rows(tmp_path, content, rows=["s[]"]))
    assert row == {"n": "1", "#text": "The old red dog", "b": [{"#text": "old red", "i": ["red"]}]}
    (sentence,) = root(piece(tmp_path, content)).children("s")
    text, places = flat(sentence)
    assert [(element.name, text[start:end]) for start, end, element in places] == [("b", "old red"), ("i", "red")]


def test_names_have_no_namespace_and_do_not_hide_each_other(tmp_path: Path) -> None:
    content = b"<d xmlns='http://a' xmlns:x='http://b'><s x:id='1' t='2'><x:t>3</x:t></s></d>"
    assert contents(rows(tmp_path, content, rows=["s[]"])) == [{"id": "1", "@t": "2", "t": ["3"]}]


@pytest.mark.parametrize(
    "attributes",
    ["id='1' x:id='2' xml:lang='en' lang='de'", "x:id='2' id='1' lang='de' xml:lang='en'"],
)
def test_an_attribute_without_a_namespace_comes_before_its_namesakes(tmp_path: Path, attributes: str) -> None:
    content = f"<d xmlns:x='http://b'><s {attributes} n='3'>t</s></d>".encode()
    found = contents(rows(tmp_path, content, rows=["s[]"]))
    assert found == [{"id": "1", "lang": "de", "n": "3", "#text": "t"}]


def test_the_encoding_is_that_of_the_spec(tmp_path: Path) -> None:
    content = "<?xml version='1.0' encoding='ISO-8859-1'?><d><s>é</s></d>".encode()
    assert contents(rows(tmp_path, content, rows=["s[]"], item="t")) == [{"t": "é"}]
    with pytest.raises(UserError, match=r"x\.xml: line 1: byte 8 \(0xe9\) is not utf-8"):
        rows(tmp_path, b"<d>\r\n<s>\xe9</s></d>".replace(b"\r\n", b"ab"))


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "not valid XML: no element found"),
        (b"<a><b></a>", "line 1, column 9: not valid XML: mismatched tag"),
        (b"<a>\n&nbsp;</a>", "line 2, column 1: not valid XML: undefined entity"),
        (b"<a/><b/>", "not valid XML: junk after document element"),
        (b"<a>" * (DEEPEST + 1), f"more than {DEEPEST} nested elements"),
        (b"<a>\n" * (DEEPEST + 1), f"line {DEEPEST + 1}: more than {DEEPEST} nested elements"),
        (b"<!DOCTYPE a [\n<!ENTITY b 'c'>]><a>&b;</a>", "line 2: declares an entity"),
        (b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", "line 1: declares an entity"),
        (b"<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><a>&b;</a>", "line 1: declares an entity"),
        (b"<!DOCTYPE a [<!ENTITY % b SYSTEM 'http://127.0.0.1:9/'> %b;]><a/>", "line 1: declares an entity"),
        (b"<a>\0</a>", "not valid XML"),
        (b"<a/>", "no list at its top"),
    ],
)
def test_a_hopeless_or_hostile_file_gives_one_clear_error(tmp_path: Path, content: bytes, error: str) -> None:
    with pytest.raises(UserError) as caught:
        rows(tmp_path, content)
    assert str(tmp_path / "x.xml") in str(caught.value) and error in str(caught.value)


def test_elements_may_be_nested_as_deeply_as_the_option_allows(tmp_path: Path) -> None:
    element, depth = root(piece(tmp_path, b"<a>" * DEEPEST + b"</a>" * DEEPEST)), 1
    while within := element.children():
        [element], depth = within, depth + 1
    assert depth == DEEPEST


def test_a_document_type_from_elsewhere_is_not_fetched(tmp_path: Path) -> None:
    content = b"<!DOCTYPE a SYSTEM 'http://127.0.0.1:9/a.dtd'><a><s>b</s></a>"
    assert contents(rows(tmp_path, content, rows=["s[]"], item="t")) == [{"t": "b"}]
