"""GENIA's XML: nested terms, and events whose words are found in a copy of their sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.sources import RawRow, Slice
from pipelines.sources.annotation_formats.genia_xml import Options, read
from ubert.schema.record import Reject

DOCUMENT = """<?xml version="1.0"?>
<!DOCTYPE Annotation SYSTEM "../event.dtd">
<Annotation><Article>
<ArticleTitle><sentence id="S1">Effects of <term id="T1" sem="Protein">IL-10</term>.</sentence></ArticleTitle>
<AbstractText>
<sentence id="S2"><term id="T2" sem="Other"><term id="T3">TNF</term> &gt; genes</term> are up in <cons id="T4"
sem="(AND Cell Cell)"><frag id="F1">B</frag> and <frag id="F2">T</frag>
<frag id="F3">cells</frag></cons>.</sentence>
<event id="E1" assertion="non-exist"><type class="Up"/><theme idref="T2" idref1="F3"/><cause idref="E2"/>
<clue>TNF &gt; genes <clueType>are</clueType> <clueType>up</clueType> <clueLoc>in <linkTheme>B</linkTheme> and T
cells</clueLoc>.</clue></event>
<event id="E2"><type/><clue>TNF &gt; genes are up in B and T cells.</clue></event>
<event id="E3"><type class="Up"/><clue>TNF &gt; genes <clueType>are</clueType> <clueType>up</clueType> in B and T
cells.</clue></event>
</AbstractText></Article></Annotation>
""".replace("T\ncells", "T cells").replace("</frag>\n<frag", "</frag> <frag")


def rows(folder: Path, content: str) -> list[RawRow | Reject]:
    (folder / "x.xml").write_text(content, encoding="utf-8")
    size = (folder / "x.xml").stat().st_size
    return list(read(Slice(str(folder), "x.xml", 0, size, 1, "utf-8", "0" * 64), Options()))


def content(folder: Path) -> dict[str, Any]:
    (row,) = rows(folder, DOCUMENT)
    assert isinstance(row, RawRow) and (row.line, row.locator) == (1, "x.xml")
    return row.content


def test_every_span_covers_its_words(tmp_path: Path) -> None:
    found = content(tmp_path)
    assert found["text"] == "Effects of IL-10.\nTNF > genes are up in B and T cells."
    spans = found["standoff"]["spans"]
    for span in spans:
        assert " ".join(found["text"][start:end] for start, end in span["fragments"]) == span["text"]
    assert [(span["label"], span["text"]) for span in spans] == [
        ("Protein", "IL-10"),
        ("Other", "TNF > genes"),
        ("", "TNF"),
        ("cons", "B and T cells"),
        ("frag", "B"),
        ("frag", "T"),
        ("frag", "cells"),
        ("clueLoc", "in B and T cells"),
        ("Up", "are up"),
    ]


def test_events_refer_to_terms_parts_and_each_other(tmp_path: Path) -> None:
    standoff = content(tmp_path)["standoff"]
    place = {span["label"]: span["id"] for span in standoff["spans"]}
    assert {span["element"] for span in standoff["spans"]} == {"term", "cons", "frag", "clueLoc", "clueType"}
    assert standoff["events"] == [
        {
            "id": "E1",
            "label": "Up",
            "trigger": place["Up"],
            "arguments": [
                {"role": "theme", "target": "T2"},
                {"role": "theme", "target": "F3"},
                {"role": "cause", "target": "E2"},
                {"role": "clueLoc", "target": place["clueLoc"]},
            ],
        },
        {"id": "E2", "label": "", "trigger": None, "arguments": []},
        {"id": "E3", "label": "Up", "trigger": place["Up"], "arguments": []},
    ]
    assert [(a["label"], a["target"], a["value"]) for a in standoff["attributes"]] == [
        ("assertion", "E1", "non-exist")
    ]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("<clue>TNF", "<clue>IL-2", "bad annotation"),
        ('<type class="Up"/>', "", "bad annotation"),
        ('<type class="Up"/>', '<type class="Up"/><type/>', "bad annotation"),
        ("</clue></event>", "</clue><clue/></event>", "bad annotation"),
        (' id="T3"', "", "bad annotation"),
        (' id="T3"', ' id="T2"', "bad annotation"),
        ("</Article>", "", "not XML"),
        ("&gt;", "&gte;", "not XML"),
        ('SYSTEM "../event.dtd"', "[<!ENTITY a 'b'>]", "not XML"),
    ],
)
def test_a_broken_abstract_is_a_reject(tmp_path: Path, old: str, new: str, reason: str) -> None:
    (row,) = rows(tmp_path, DOCUMENT.replace(old, new))
    assert isinstance(row, Reject) and (row.line, row.reason) == (1, reason)
    assert "Effects of" in row.raw


def test_triggers_at_one_place_of_two_sentences_are_two_mentions(tmp_path: Path) -> None:
    content = "".join(
        f'<sentence id="S{i}">rises</sentence><event id="E{i}"><type class="Up"/>'
        "<clue><clueType>rises</clueType></clue></event>"
        for i in (1, 2)
    )
    (row,) = rows(tmp_path, f"<Annotation>{content}</Annotation>")
    assert isinstance(row, RawRow), row
    assert [span["fragments"] for span in row.content["standoff"]["spans"]] == [[[0, 5]], [[6, 11]]]


def test_every_kind_of_argument_and_attribute_is_kept(tmp_path: Path) -> None:
    event = (
        '<event id="E1" uncertainty="doubtful" assertion="exist"><type class="Up"/><theme idref="T1"/>'
        '<site idref="T1"/><cause idref="T1"/>'
        "<clue><clueExperiment>a</clueExperiment> <clueTime>b</clueTime></clue></event>"
    )
    sentence = '<sentence id="S1"><term id="T1" sem="P">a</term> b</sentence>'
    (row,) = rows(tmp_path, f"<Annotation>{sentence}{event}</Annotation>")
    assert isinstance(row, RawRow)
    standoff = row.content["standoff"]
    place = {span["id"]: span["fragments"] for span in standoff["spans"]}
    assert [(one["role"], place[one["target"]]) for one in standoff["events"][0]["arguments"]] == [
        *((role, [[0, 1]]) for role in ("theme", "site", "cause", "clueExperiment")),
        ("clueTime", [[2, 3]]),
    ]
    assert standoff["attributes"] == [
        {"id": "E1 assertion", "label": "assertion", "target": "E1", "value": "exist"},
        {"id": "E1 uncertainty", "label": "uncertainty", "target": "E1", "value": "doubtful"},
    ]
