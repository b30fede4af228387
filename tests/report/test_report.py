"""`ubert stats --html`: one page, opened in a browser without a network."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import browser
import pytest
from msgspec.structs import replace
from worlds import put_corpus

from pipelines import cli
from pipelines.audit.duplicates import duplicates
from pipelines.ingest.ingest import ingest
from pipelines.mixtures.mix import mix
from pipelines.report.numbers import records
from pipelines.report.page import RECORDS, html
from pipelines.report.visible import visible
from pipelines.specs import dataset_names, mixture, specs_folder
from pipelines.store.warehouse import connect, sql
from ubert.schema.errors import UserError
from ubert.schema.record import Argument, Category, Event, Record, Relation, Source, Span

REPO = Path(__file__).parents[2]
SAMPLES = REPO / "corpus_specs" / "samples"
ARTEFACTS = Path(os.environ.get("UBERT_ARTEFACTS", REPO / "tests" / "artefacts"))
CORPORA = 10
SCRIPT = "<script>document.title = 'taken'</script>"
ATTACK = f"{SCRIPT}</div></mark><img src=x onerror=\"document.title='taken'\"> & 'x' \"y\" </style> http://evil.example/"
HEBREW = "שלום \u202eevil\u202c עולם \x00 \x1b[31m red"
WILD = [
    # nested, crossing and discontinuous mentions, and names of categories that are markup
    Record(
        record_id=f"wild/train/<b>{i}",
        corpus="wild",
        split="train",
        language="he",
        task="event",
        instruction=ATTACK,
        text=text,
        pair=f"{ATTACK} pair",
        source=Source(f"<i>{i}.txt", 1, "00"),
        categories=(
            Category(ATTACK, "entity"),
            Category("$a^{b", "entity"),
            Category("人 \u202eevil", "entity"),
            Category("joins", "relation"),
            Category("happens", "event"),
            Category("role", "role"),
        ),
        spans=[
            Span(0, 12, 0),
            Span(2, 6, 1),
            Span(4, 14, 2),
            Span(0, 12, 1),
            Span(15, 16, 2, group=1),
            Span(18, 20, 2, group=1),
            Span(1, 7, 0, side="pair"),
        ],
        relations=[Relation(0, 1, 3), Relation(6, 2, 3)],
        events=[Event(4, 1, [Argument(5, span=0), Argument(5, event=1)]), Event(4, None, [])],
    )
    for i, text in enumerate((ATTACK, HEBREW, "a plain text of more than twenty characters"))
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, local_ray: None) -> Path:
    """The committed samples and their mixture, with a corpus that means harm and one that holds its texts out."""
    root = tmp_path_factory.mktemp("report") / "store"
    specs = specs_folder(None)
    ingest([n for n in dataset_names(specs) if n.startswith("sample_")], specs=specs, data=SAMPLES, root=root)
    mix(mixture("quickstart", specs), root=root)
    put_corpus(root, "wild", WILD, rejected=[("train", ATTACK), ("train", ATTACK)])
    held_out = [
        replace(record, record_id=f"held/{i}", corpus="held", split="test") for i, record in enumerate(WILD)
    ]
    put_corpus(root, "held", held_out)
    duplicates(root=root)
    return root


@pytest.fixture(scope="module")
def report(root: Path) -> Path:
    path = root.parent / "report.html"
    path.write_text(html(root), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def page(report: Path, tab: browser.Page) -> browser.Page:
    tab.open(report)
    return tab


def test_the_page_asks_nobody_for_anything_and_has_no_error(page: browser.Page, report: Path) -> None:
    assert page.value("document.readyState") == "complete"
    assert page.requests == [report.as_uri()]
    assert page.complaints == []


def test_the_file_names_no_address_but_in_texts_of_the_corpus(report: Path) -> None:
    """No namespace either: SVG inside HTML needs none."""
    found = re.findall(r"\S*(?:https?:|ftp:|wss?:|//)[^\s<]*", report.read_text(encoding="utf-8"))
    assert found
    assert set(found) <= {"http://evil.example/"}
    assert "@import" not in report.read_text(encoding="utf-8")
    assert "url(" not in report.read_text(encoding="utf-8")


def test_texts_stay_texts(page: browser.Page) -> None:
    """The policy of the page would stop a script, too, so the browser ignores it here."""
    assert page.value("document.title").startswith("Corpus report")
    assert page.value("document.querySelectorAll('script').length") == 1
    assert (
        page.value("document.querySelectorAll('img, iframe, object, embed, link, i, b:not(summary b)').length")
        == 0
    )
    assert page.value(
        "[...document.querySelectorAll('*')].every(e => !e.getAttributeNames().some(n => n.startsWith('on')))"
    )
    assert SCRIPT in page.value("document.body.textContent")


def test_the_policy_lets_no_other_script_run(report: Path) -> None:
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', report.read_text(encoding="utf-8"))
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-")
    assert policy.count("script") == 1


def test_marks_cover_the_words_of_their_mentions(page: browser.Page, root: Path) -> None:
    with connect(root) as connection:
        drawn = [record for some in records(connection, RECORDS).values() for record in some]
    assert len(drawn) == CORPORA * RECORDS
    shown = page.value(
        """Object.fromEntries([...document.querySelectorAll('[data-record]')].map(article => [
            article.dataset.record,
            [...article.querySelectorAll('.text')].map(text => [text.dataset.side, text.textContent,
                [...text.querySelectorAll('mark')].map(mark => [mark.dataset.span, mark.textContent])])]))"""
    )
    checked = 0
    for record in drawn:
        sides = {side: (text, marks) for side, text, marks in shown[visible(record.record_id)]}
        assert sides["text"][0] == visible(record.text)
        if record.pair is not None:
            assert sides["pair"][0] == visible(record.pair)
        for i, span in enumerate(record.spans):
            marks = sides[span.side][1]
            whole = record.text if span.side == "text" else str(record.pair)
            parts = "".join(words for number, words in marks if number == str(i))
            assert parts == visible(whole[span.start : span.end]), (record.record_id, i)
            checked += 1
    assert checked > 50


def test_marks_are_coloured_and_labelled(page: browser.Page) -> None:
    marks: list[list[Any]] = page.value(
        """[...document.querySelectorAll('[data-record^=sample_entities] mark')].map(mark => [
            mark.dataset.label, getComputedStyle(mark).borderBottomColor,
            getComputedStyle(mark, '::after').content])"""
    )
    assert len({colour for _, colour, _ in marks}) == len({label for label, _, _ in marks}) > 1
    assert all(content == f'"{label}"' for label, _, content in marks)


def test_pictures_have_size_and_stay_inside_the_page(page: browser.Page) -> None:
    page.value("document.querySelectorAll('details').forEach(d => d.open = true)")
    boxes = page.value(
        """[...document.querySelectorAll('svg')].map(picture => picture.getBoundingClientRect()).map(
            box => [box.left, box.right, box.height])"""
    )
    assert len(boxes) > 30
    assert all(left >= 0 and right <= 1280 and height > 20 for left, right, height in boxes)
    drawn = page.value(
        "[...document.querySelectorAll('svg path, svg use')].map(e => e.getBoundingClientRect().left)"
    )
    assert min(drawn) >= 0


def test_the_words_of_a_picture_are_those_of_the_corpus(page: browser.Page) -> None:
    words = page.value("[...document.querySelectorAll('#corpora svg text')].map(t => t.textContent)")
    assert "$a^{b" in words
    assert "人 [U+202E]evil" in words


def test_the_evidence_of_an_audit_is_counted(page: browser.Page, root: Path) -> None:
    [row] = sql(
        root, "SELECT (SELECT count(*) FROM duplicates) AS d, (SELECT count(*) FROM leaks) AS l"
    ).to_pylist()
    assert row["d"] > 0 and row["l"] > 0
    heads = page.value("[...document.querySelectorAll('#duplicates h3')].map(h => h.textContent)")
    assert f"Duplicates: {row['d']} records" in heads
    assert f"Leaks: {row['l']} records" in heads


def test_the_filter_hides_what_does_not_match(page: browser.Page) -> None:
    count = "[...document.querySelectorAll('details.corpus')].filter(d => !d.hidden).length"
    enter = "filter.value = '{}'; filter.dispatchEvent(new Event('input'))"
    assert page.value(count) == CORPORA
    page.value(enter.format("QUESTIONS"))
    assert page.value(count) == 1
    page.value(enter.format(""))
    assert page.value(count) == CORPORA


@pytest.mark.parametrize(("name", "media", "scheme"), [("light", "screen", "light"), ("dark", "screen", "dark")])
def test_a_picture_of_the_page_is_kept(page: browser.Page, name: str, media: str, scheme: str) -> None:
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    page.call(
        "Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}]
    )
    path = ARTEFACTS / f"report-{name}.png"
    page.picture(path)
    assert path.stat().st_size > 50_000


def test_the_same_store_gives_the_same_page(root: Path, report: Path) -> None:
    assert html(root) == report.read_text(encoding="utf-8")


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str | int | None:
    """What the command exits with."""
    monkeypatch.setattr(sys, "argv", ["ubert", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code


def test_the_command_writes_the_page(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not run(monkeypatch, "stats", "--html", str(tmp_path / "r.html"), "--root", str(root))
    assert (tmp_path / "r.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "r.html" in capsys.readouterr().out


def test_what_cannot_be_reported_gives_one_clear_error(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match="the store has no corpus yet"):
        html(tmp_path / "none")
    assert run(monkeypatch, "stats", "--html", str(tmp_path / "no/folder.html"), "--root", str(root)) == 1
    assert "folder.html: cannot be written: No such file or directory" in capsys.readouterr().err


def test_statistics_of_a_store_without_corpora_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not run(monkeypatch, "stats", "--root", str(tmp_path / "none"))
    assert (
        f"{tmp_path / 'none'}: the store has no corpus yet; make one with `ubert ingest NAME`"
        in capsys.readouterr().err
    )


def test_a_page_of_sixty_corpora_stays_below_3_mb(report: Path) -> None:
    assert report.stat().st_size / CORPORA * 60 < 3_000_000
