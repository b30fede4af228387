"""Examples on the page of datasets: short, drawn, and only from texts that may be shown."""

from __future__ import annotations

from html import unescape
from pathlib import Path
from re import sub

import pytest
from worlds import World

from pipelines.pages.examples import AROUND, drawn, left_out, plain, quoted
from pipelines.specs import dataset_spec
from ubert.schema.checks import covered
from ubert.schema.record import Category, Record, Relation, Source, Span

PERSON, PLACE = Category("person", "entity"), Category("place", "entity")
LIVES = Category("lives in", "relation")


def record(text: str, spans: list[Span], relations: list[Relation] | None = None) -> Record:
    return Record(
        "r", "c", "train", "en", "relation", "who lives where", text, Source("f", 1, "0"),
        categories=(PERSON, PLACE, LIVES), spans=spans, relations=relations or [],
    )  # fmt: skip


def at(text: str, words: str, category: int) -> Span:
    start = text.index(words)
    return Span(start, start + len(words), category)


def test_a_mention_is_marked_with_its_category() -> None:
    text = "Ada lives in Oslo."
    found = drawn(record(text, [at(text, "Ada", 0), at(text, "Oslo", 1)], [Relation(0, 1, 2)]))
    assert found == (
        "<mark>Ada <small>person</small></mark> lives in <mark>Oslo <small>place</small></mark>. / "
        "<em>Ada · lives in · Oslo</em>"
    )


def test_a_long_text_is_quoted_around_its_first_relation() -> None:
    text = "word " * 100 + "Ada lives in Oslo. " + "word " * 100 + "Ada"
    short = quoted(record(text, [Span(0, 4, 0), at(text, "Ada", 0), at(text, "Oslo", 1)], [Relation(1, 2, 2)]))
    assert len(short.text) <= AROUND + 2 and short.text.startswith("…word") and short.text.endswith("word…")
    assert [covered(short, span) for span in short.spans] == ["Ada", "Oslo"]
    assert short.relations == [Relation(0, 1, 2)]


def test_a_mention_longer_than_the_quotation_is_left_without_a_mark() -> None:
    text = "x" * 500
    short = quoted(record(text, [Span(0, 500, 0)]))
    assert len(short.text) == AROUND + 1 and not short.spans


@pytest.mark.parametrize("text", ["a | b *c* _d_ `e` [f](g) <b>h</b> &amp; #i", "$x^2$ ~~y~~ ==z== :smile: {k} !"])
def test_a_text_is_words_alone_on_the_page(text: str) -> None:
    found = plain(text)
    assert unescape(found) == text
    assert not set("|*_`[]<>") & set(sub(r"&#?\w+;", "", found))


def test_a_text_is_one_line() -> None:
    assert plain("a\n\nb\tc") == "a b c"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"licence": "CC-BY-4.0"}, None),
        ({"licence": "CC0-1.0 (README)"}, None),
        ({"licence": "CC-BY-NC-4.0"}, "licence"),
        ({"licence": "CC-BY-4.0, texts withheld", "licence_class": "permissive"}, "licence"),
        ({"licence": "CC-BY-4.0", "licence_class": "research-only"}, "licence"),
        ({"licence": "CC-BY-4.0", "description": "Hateful posts."}, "abusive language"),
    ],
)
def test_what_may_not_be_shown_is_left_out(tmp_path: Path, said: dict[str, str], reason: str | None) -> None:
    world = World(tmp_path)
    world.spec("posts", **said)
    assert left_out(dataset_spec("posts", world.specs)) == reason
