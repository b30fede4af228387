"""The reasons in a draft are English sentences about its columns, whatever these are called."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from drafts import PEOPLE, PLACES, mirror, put, sentence

from pipelines.drafting.draft import draft
from pipelines.drafting.tasks.guess import called, each_of
from pipelines.drafting.write import text_of

RNG = random.Random(3)


def reasons(tmp_path: Path, rows: list[dict[str, Any]]) -> list[str]:
    """Return the reasons of all candidates."""
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    made = draft([put(mirror(tmp_path), "train.jsonl", lines)])
    return [reason for candidate in made.candidates for reason in candidate.reasons]


@pytest.mark.parametrize("many", [1, 2])
def test_columns_of_tags(tmp_path: Path, many: int) -> None:
    names, blocks = [PLACES, PEOPLE][:many], []
    for _ in range(30):
        words = sentence(RNG).split()
        tags = [["B-name" if word in some else "O" for word in words] for some in names]
        blocks.append("\n".join(" ".join(row) for row in zip(words, *tags, strict=True)))
    text = text_of(draft([put(mirror(tmp_path), "train.txt", "\n\n".join(blocks) + "\n")]))
    assert f"{many + 1} columns; column 2 has tags such as 'B-name'.\n" in text
    tagged = ["column 'tag' tags", "columns 'tag1' and 'tag2' tag"][many - 1]
    assert f"# Reason: {tagged} each item of 'token'.\n" in text
    assert "column 'token' has the tokens of a text" in text.replace("\n# ", " ")


def test_relations_between_items_of_a_list(tmp_path: Path) -> None:
    rows = []
    for _ in range(40):
        text = sentence(RNG)
        marks = []
        for names in (PEOPLE, PLACES):
            word = next(name for name in names if name in text)
            at = text.index(word)
            marks.append({"id": f"m{len(marks)}", "start": at, "end": at + len(word), "type": "name"})
        rels = [{"arg1": "m0", "arg2": "m1", "type": RNG.choice(["in", "at"])}]
        rows.append({"text": text, "marks": marks, "rels": rels})
    found = reasons(tmp_path, rows)
    places = "each item of 'marks' has a place ('start', 'end')"
    assert {"each item of 'rels' joins 'arg1' and 'arg2'", places} <= {*found}


def test_labels_and_pairs(tmp_path: Path) -> None:
    rows = [{"a": sentence(RNG), "b": sentence(RNG), "is": ["so", "not"][n % 2]} for n in range(60)]
    found = reasons(tmp_path, rows)
    assert {"column 'is' has 2 values in 60 rows", "columns 'a' and 'b' are two texts"} <= {*found}
    assert "column 'a' has text" in found


def test_names_of_columns_and_items() -> None:
    assert called("it's") == 'column "it\'s"'
    assert called("a", "b", "c") == "columns 'a', 'b' and 'c'"
    assert called("a.b") == "field 'a.b'"
    paths = ["a[]", "a.b[].c[]", "a.{key}", "a[].{key}[]", ""]
    assert [each_of(path) for path in paths] == [
        "each item of 'a'", "each item of 'a.b[].c'", "each item of 'a'", "each item of 'a[].{key}'", "each row",
    ]  # fmt: skip


def test_abbreviations_that_no_rule_expands_are_marked(tmp_path: Path) -> None:
    rows = [{"text": sentence(RNG), "kind": ["MACH", "PERS", "7"][n % 3]} for n in range(60)]
    made = draft([put(mirror(tmp_path), "train.jsonl", "".join(json.dumps(row) + "\n" for row in rows))])
    text = text_of(made)
    assert "    MACH: MACH  # 20; unknown: write it in plain words\n" in text
    assert '    "7": "7"  # 20; unknown: write it in plain words\n' in text
    assert "    PERS: person  # 20\n" in text


def test_labels_that_differ_in_spelling_are_named_together(tmp_path: Path) -> None:
    labels = ["Refund", "refund", "refund_", "delivery"]
    rows = [{"text": sentence(RNG), "topic": labels[n % 4]} for n in range(80)]
    made = draft([put(mirror(tmp_path), "train.jsonl", "".join(json.dumps(row) + "\n" for row in rows))])
    text = text_of(made)
    assert text.count("# 20; unknown: if it means the same as Refund, give both one name\n") == 2
    assert "    delivery: delivery  # 20\n" in text


def test_mentions_that_cut_words_are_counted(tmp_path: Path) -> None:
    rows = []
    for n in range(60):
        text = sentence(RNG)
        at = text.index(" in ") + 4 + n % 2
        rows.append({"text": text, "spans": [{"start": at, "end": text.index(" on "), "label": "place"}]})
    made = draft([put(mirror(tmp_path), "train.jsonl", "".join(json.dumps(row) + "\n" for row in rows))])
    assert made.best.trial.spec.task == "ner"
    assert "# Reason: only 50% of the mentions begin and end at words.\n" in text_of(made)
