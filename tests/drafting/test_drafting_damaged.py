"""A few damaged rows don't change a draft's format or task. They are rejected, and the draft says where."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drafts import PEOPLE, PLACES, mirror, put, sentence

from pipelines.drafting.draft import Draft, draft
from pipelines.drafting.write import text_of

Mark = dict[str, Any]


def marked() -> list[dict[str, Any]]:
    """Sixty rows with two mentions each, and a column of few values beside them."""
    rng, rows = random.Random(1), []
    for n in range(60):
        text = f"On day {n} {sentence(rng)}"
        marks = []
        for kind, names in (("PERS", PEOPLE), ("LOC", PLACES)):
            word = next(name for name in names if name in text)
            marks.append({"from": text.index(word), "to": text.index(word) + len(word), "kind": kind})
        rows.append({"uid": f"u{n}", "sentence": text, "shift": ["early", "late"][n % 2], "marks": marks})
    return rows


def drafted(tmp_path: Path, rows: list[dict[str, Any]], change: Callable[[list[bytes]], None]) -> Draft:
    lines = [json.dumps(row, ensure_ascii=False).encode("latin-1") for row in rows]
    change(lines)
    return draft([put(mirror(tmp_path), "all.jsonl", b"\n".join(lines) + b"\n")])


def check(made: Draft, rejected: str) -> None:
    spec = made.best.trial.spec
    assert (spec.format, spec.task, spec.map.text) == ("jsonl", "ner", ["sentence"])
    assert spec.map.offsets.absent_start is None
    assert (made.kept, made.reasons.total()) == (59, 1)
    assert rejected in text_of(made).replace("\n# ", " ")


@pytest.mark.parametrize(
    ("damage", "rejected"),
    [
        (lambda mark: mark.update(to=1), "Rejected: 1 (span outside its text), first all.jsonl:21: "),
        (lambda mark: mark.update({"from": "x"}), "Rejected: 1 (wrong type), first all.jsonl:21: 'from' is 'x'"),
        (
            lambda mark: mark.pop("to"),
            "Rejected: 1 (missing field), first all.jsonl:21: no 'to' in an item of marks[]",
        ),
        (
            lambda mark: mark.pop("from"),
            "Rejected: 1 (missing field), first all.jsonl:21: no 'from' in an item of marks[]",
        ),
    ],
)
def test_one_damaged_mention_is_rejected(tmp_path: Path, damage: Callable[[Mark], Any], rejected: str) -> None:
    rows = marked()
    damage(rows[20]["marks"][0])
    check(drafted(tmp_path, rows, lambda lines: None), rejected)


@pytest.mark.parametrize("at", [0, 3])
def test_one_truncated_line_is_rejected(tmp_path: Path, at: int) -> None:
    def cut(lines: list[bytes]) -> None:
        lines[at] = lines[at][20:] if at == 0 else lines[at][:30]

    made = drafted(tmp_path, marked(), cut)
    check(made, f"Rejected: 1 (not JSON), first all.jsonl:{at + 1}: column ")
    assert made.best.reasons[0] == "49 of the first 50 lines are JSON objects"


def test_a_truncated_line_and_a_byte_of_another_encoding_are_still_json_lines(tmp_path: Path) -> None:
    rows = marked()
    rows[30]["sentence"] += " at the café"
    made = drafted(tmp_path, rows, lambda lines: lines.__setitem__(3, lines[3][:30]))
    check(made, "Rejected: 1 (not JSON), first all.jsonl:4: column ")
    assert [entry.encoding for entry in made.best.trial.spec.files] == ["latin-1"]


def test_many_mentions_that_end_before_they_start_have_no_place(tmp_path: Path) -> None:
    rows = marked()
    for row in rows[:20]:
        row["marks"][0]["to"] = 0
    assert drafted(tmp_path, rows, lambda lines: None).best.trial.spec.task != "ner"


def test_one_damaged_offset_of_a_field_of_its_own_is_rejected(tmp_path: Path) -> None:
    """A far offset of one row doesn't mean that all offsets count from the start of a document. Its word is found
    in the text."""
    rng, rows = random.Random(2), []
    for n in range(60):
        text = f"On day {n} {sentence(rng)}"
        word = next(name for name in PEOPLE if name in text)
        at = text.index(word)
        rows.append({"text": text, "actor": word, "actor_start": at, "actor_end": at + len(word)})
    rows[20]["actor_end"] = 9_000
    rows[30]["actor_start"] = "x"
    made = drafted(tmp_path, rows, lambda lines: None)
    spec = made.best.trial.spec
    assert (spec.task, spec.map.offsets.base) == ("ner", "text")
    assert (made.kept, made.reasons) == (59, {"wrong type": 1})


def test_a_relation_without_its_mention_leaves_the_task(tmp_path: Path) -> None:
    for n, (person, place) in enumerate(zip(PEOPLE * 3, PLACES * 3, strict=False)):
        at = len(person) + 10
        lines = [f"T1\tPerson 0 {len(person)}\t{person}", f"T2\tCity {at} {at + len(place)}\t{place}"]
        lines += [f"R1\t{'lives' if n == 4 else 'Lives'} Arg1:T1 Arg2:{'T9' if n == 3 else 'T2'}"]
        put(mirror(tmp_path), f"train/{n}.txt", f"{person} lives in {place}.")
        put(mirror(tmp_path), f"train/{n}.ann", "\n".join(lines) + "\n")
    made = draft([mirror(tmp_path)])
    assert made.best.trial.spec.task == "relation"
    assert "first train/3.txt:1: " in text_of(made).replace("\n# ", " ")
    assert "# 1; unknown: if it means the same as Lives, give both one name\n" in text_of(made)


@pytest.mark.parametrize(("damaged", "kept"), [("text", 59), ("label", 60)])  # an object may be a label
def test_one_value_of_another_type_leaves_the_task(tmp_path: Path, damaged: str, kept: int) -> None:
    rng = random.Random(3)
    rows: list[dict[str, Any]] = [{"text": sentence(rng), "label": "ab"[n % 2]} for n in range(60)]
    rows[20][damaged] = {"value": "a"}
    made = drafted(tmp_path, rows, lambda lines: None)
    spec = made.best.trial.spec
    assert (spec.task, spec.map.text, spec.map.label) == ("classification", ["text"], "label")
    assert (made.kept, made.reasons.total()) == (kept, 60 - kept)
