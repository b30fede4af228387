"""Drafts of less usual shapes: ragged lines, mentions in columns, nested lists, dialogues, folders of texts."""

from __future__ import annotations

import csv
import io
import json
import random
from pathlib import Path
from typing import Any

import pytest
from drafts import NOUNS, PEOPLE, PLACES, mirror, put, records, sentence, spec_of

from ubert.schema.checks import covered
from ubert.schema.record import Record


def related(record: Record) -> list[tuple[str, str, str]]:
    """The relations of a record by their words."""
    words = [covered(record, span) for span in record.spans]
    return [(words[r.head], record.categories[r.category].name, words[r.tail]) for r in record.relations]


def jsonl(tmp_path: Path, rows: list[dict[str, Any]], name: str = "train.jsonl") -> Path:
    return put(mirror(tmp_path), name, "".join(json.dumps(row) + "\n" for row in rows))


def test_lines_with_any_number_of_annotations_are_texts(tmp_path: Path) -> None:
    rng, lines, texts = random.Random(1), [], []
    for n in range(60):
        texts.append(f"On day {n} {sentence(rng)}")
        marks = [f"{rng.randrange(9)},{rng.randrange(9)} THING{k}" for k in range(rng.choice([1, 2, 3, 4]))]
        lines.append("\t".join([texts[-1], *marks]))
    spec = spec_of(tmp_path, put(mirror(tmp_path), "odd.tsv", "\n".join(lines) + "\n"))
    assert (spec.format, spec.task, spec.options) == ("table", "text", {"columns": ["text", "rest"], "rest": True})
    assert [record.text for record in records(spec, mirror(tmp_path))] == texts


@pytest.mark.parametrize("sign", ["####", "|||", "~~"])
def test_a_separator_of_several_signs(tmp_path: Path, sign: str) -> None:
    rng = random.Random(2)
    rows = [(sentence(rng), rng.choice(["calm", "angry"])) for _ in range(40)]
    spec = spec_of(tmp_path, put(mirror(tmp_path), "m.txt", "".join(f"{t}{sign}{m}\n" for t, m in rows)))
    assert (spec.task, spec.options["separator"]) == ("classification", sign)
    found = records(spec, mirror(tmp_path))
    assert [(r.text, r.categories[r.labels[0]].name) for r in found] == rows


def test_a_separator_within_a_column_of_tabs_is_none(tmp_path: Path) -> None:
    rng = random.Random(3)
    lines = [f"{n}\tby: {n * 7};after: {n * 3}\t{sentence(rng)}. {sentence(rng)}.\n" for n in range(40)]
    spec = spec_of(tmp_path, put(mirror(tmp_path), "stories.tsv", "".join(lines)))
    assert (spec.format, spec.options) == ("table", {"columns": ["id", "text", "text2"]})
    assert len(records(spec, mirror(tmp_path))) == 40


def test_columns_of_mentions_with_offsets_into_a_document(tmp_path: Path) -> None:
    """A sentence has a line for each pair of mentions; the offsets count from the start of a longer document."""
    rng, lines, expected = random.Random(4), [], 0
    for n in range(30):
        text, shift = sentence(rng), 500 + 90 * n
        person, noun, place = (next(w for w in words if w in text) for words in (PEOPLE, NOUNS, PLACES))
        for other in (noun, place)[: 1 + n % 2]:
            places = [
                f"{word}|{shift + text.index(word)}|{shift + text.index(word) + len(word)}"
                for word in (person, other)
            ]
            lines.append("|".join([f"D{n}", text, *places]))
            expected += 1
    spec = spec_of(tmp_path, put(mirror(tmp_path), "pairs.rel", "\n".join(lines) + "\n"))
    assert (spec.task, spec.options["group"], spec.map.offsets.base) == (
        "relation",
        ["column1", "text"],
        "document",
    )
    found = records(spec, mirror(tmp_path))
    assert len(found) == 30
    assert sum(len(record.relations) for record in found) == expected
    assert all(head in PEOPLE and tail in NOUNS + PLACES for r in found for head, _, tail in related(r))


def test_two_mentions_of_a_row_and_its_label_are_a_relation(tmp_path: Path) -> None:
    rng, rows = random.Random(5), []
    for _ in range(50):
        words = sentence(rng).split()
        subj, obj = (next(i for i, w in enumerate(words) if w in names) for names in (PEOPLE, PLACES))
        ends = {"subj_start": subj, "subj_end": subj, "obj_start": obj, "obj_end": obj}
        rows.append({"token": words, **ends, "relation": rng.choice(["left_in", "no_relation"])})
    spec = spec_of(tmp_path, jsonl(tmp_path, rows))
    assert (spec.task, spec.map.offsets.end) == ("relation", "inclusive")
    assert {relation.label for relation in spec.categories.relation} == {"left_in", "no_relation"}
    for record in records(spec, mirror(tmp_path)):
        [(head, _, tail)] = related(record)
        assert (head in PEOPLE, tail in PLACES) == (True, True)


def test_a_flag_that_confirms_two_mentions_is_coreference(tmp_path: Path) -> None:
    rng, rows = random.Random(6), []
    for n in range(40):
        name = rng.choice(PEOPLE)
        text = f"{name} sang, and then {rng.choice(['she', 'he'])} slept."
        pronoun = "she" if "she" in text else "he"
        place = {"A": name, "A_offset": 0, "P": pronoun, "P_offset": text.index(f" {pronoun} ") + 1}
        rows.append({"text": text, "pointed": place, "label": n % 3 > 0})
    spec = spec_of(tmp_path, jsonl(tmp_path, rows))
    assert spec.task == "coref"
    for record, row in zip(records(spec, mirror(tmp_path)), rows, strict=True):
        groups = [span.group for span in record.spans]
        assert (len(groups), groups[0] is not None and groups[0] == groups[1]) == (2, row["label"])


def test_relations_as_nested_lists(tmp_path: Path) -> None:
    rng, rows = random.Random(7), []
    for _ in range(40):
        words = sentence(rng).split()
        a, b = (next(i for i, w in enumerate(words) if w in names) for names in (PEOPLE, PLACES))
        rows.append(
            {"words": words, "links": [[b, b + 1, "spot", rng.choice(["of", "near"]), a, a + 1, "someone"]]}
        )
    spec = spec_of(tmp_path, jsonl(tmp_path, rows))
    assert (spec.task, {*spec.categories.entity}) == ("relation", {"spot", "someone"})
    assert {relation.label for relation in spec.categories.relation} == {"of", "near"}
    assert all(related(r)[0][0] in PLACES for r in records(spec, mirror(tmp_path)))


def test_lists_in_which_each_position_has_a_meaning(tmp_path: Path) -> None:
    rng, content = random.Random(8), dict[str, list[Any]]()
    for _ in range(60):
        words = sentence(rng).split()
        a, b = (next(i for i, w in enumerate(words) if w in names) for names in (PEOPLE, PLACES))
        row = {"tokens": words, "h": [words[a].lower(), "Q1", [[a]]], "t": [words[b].lower(), "Q2", [[b]]]}
        content.setdefault(f"P{rng.choice([17, 31])}", []).append(row)
    spec = spec_of(tmp_path, put(mirror(tmp_path), "by_relation.json", json.dumps(content)))
    assert (spec.format, spec.task) == ("json", "relation")
    assert {relation.label for relation in spec.categories.relation} == {"P17", "P31"}
    assert all(related(r)[0][0] in PEOPLE for r in records(spec, mirror(tmp_path)))


@pytest.mark.parametrize("width", [1, 2])
def test_pairs_of_successive_numbers_are_a_start_and_an_end(tmp_path: Path, width: int) -> None:
    """With `width` 2, the words say that both numbers are tokens of the mention."""
    rng, rows, meant = random.Random(5), [], []
    for _ in range(100):
        tokens = [rng.choice(NOUNS) for _ in range(10)]
        start = rng.randrange(11 - width)
        meant.append(" ".join(tokens[start : start + width]))
        said = {"name": meant[-1]} if width == 2 else {}
        entity = {"span": [start, start + 1], "type": rng.choice("AB"), **said}
        rows.append({"tokens": tokens, "entities": [entity]})
    spec = spec_of(tmp_path, jsonl(tmp_path, rows))
    found = records(spec, mirror(tmp_path))
    assert [covered(record, span) for record in found for span in record.spans] == meant


def tagged(words: list[str], names: list[str], label: str) -> list[str]:
    return [f"B-{label}" if word in names else "O" for word in words]


def test_columns_of_tags_that_name_the_same_mentions_are_one(tmp_path: Path) -> None:
    """The first line names the columns. The coarse tags repeat the fine ones; the last column has others."""
    rng, blocks = random.Random(9), []
    for _ in range(40):
        words = sentence(rng).split()
        fine = [
            tag.replace("place", rng.choice(["place.town", "place.city"]))
            for tag in tagged(words, PLACES, "place")
        ]
        coarse, other = tagged(words, PLACES, "place"), tagged(words, PEOPLE, "who")
        blocks.append("\n".join("\t".join(row) for row in zip(words, coarse, fine, other, strict=True)))
    content = "TOKEN\tCOARSE\tFINE\tOTHER\n" + "\n\n".join(blocks) + "\n"
    spec = spec_of(tmp_path, put(mirror(tmp_path), "odd.tsv", content))
    assert (spec.format, spec.options["comments"], spec.map.tags) == ("conll", ["TOKEN\t"], ["tag2", "tag3"])
    assert {*spec.categories.entity} == {"place.town", "place.city", "who"}
    assert len(records(spec, mirror(tmp_path))) == 40


def test_folders_of_texts_are_labels(tmp_path: Path) -> None:
    rng = random.Random(10)
    for split, many in (("train", 6), ("test", 2)):
        for mood in ("veryGlad", "so_sad", "neutral"):
            for n in range(many):
                put(mirror(tmp_path), f"{split}/{mood}/{n}.txt", f"{sentence(rng)}.\n\n{sentence(rng)}, {n}.\n")
    spec = spec_of(tmp_path, mirror(tmp_path))
    assert (spec.format, spec.task) == ("text", "classification")
    assert [(e.split, e.path, e.options) for e in spec.files][3:5] == [
        ("test", "test/neutral/*.txt", {"constants": {"label": "neutral"}}),
        ("test", "test/so_sad/*.txt", {"constants": {"label": "so_sad"}}),
    ]
    found = records(spec, mirror(tmp_path))
    assert len(found) == 24
    assert all("\n\n" in record.text for record in found)


def test_questions_on_a_dialogue(tmp_path: Path) -> None:
    """The offsets of the answers count words of an utterance, so that their words are searched."""
    rng, dialogues = random.Random(11), []
    for n in range(20):
        said = [{"who": name, "utterance": f"{sentence(rng)}, said {n}{i}"} for i, name in enumerate(PEOPLE)]
        answer = {"answer_text": f"said {n}4", "utterance_id": 4, "from": 9, "to": 11}
        asked = [{"id": f"q{n}", "question": "What did the fifth one say?", "answers": [answer]}]
        dialogues.append({"lines": said, "qas": asked})
    spec = spec_of(tmp_path, put(mirror(tmp_path), "talk.json", json.dumps({"data": dialogues})))
    assert (spec.task, spec.options) == ("qa", {"rows": ["data[].qas[]"], "enclosing": ["lines"]})
    for n, record in enumerate(records(spec, mirror(tmp_path))):
        assert (record.text.count("\n"), [covered(record, span) for span in record.spans]) == (5, [f"said {n}4"])


def test_a_label_that_differs_for_one_text_is_not_of_the_text(tmp_path: Path) -> None:
    rng, claims = random.Random(12), []
    for n in range(60):
        views = [{"view": k, "stance_label": rng.choice(["for", "against"])} for k in range(4)]
        claims.append(
            {"text": f"{sentence(rng)} {n}", "views": views, "topics": rng.sample(["law", "art", "food"], 2)}
        )
    spec = spec_of(tmp_path, put(mirror(tmp_path), "claims.json", json.dumps(claims)))
    assert (spec.task, spec.options, spec.map.label) == ("multilabel", {"rows": ["[]"]}, "topics")
    assert len(records(spec, mirror(tmp_path))) == 60


def test_mentions_in_the_title_and_roles_that_are_classes(tmp_path: Path) -> None:
    rng, rows = random.Random(13), []
    for n in range(40):
        person, place = rng.choice(PEOPLE), rng.choice(PLACES)
        roles = [("mover", person), ("goal", place), ("stage", rng.choice(["planned", "finished"]))]
        arguments = [{"role": role, "argument": words} for role, words in roles]
        event = {"event_type": "move", "trigger": "moves", "arguments": arguments}
        title = f"Today {person} moves" if n % 3 else "News of the day"
        text = f"It is said that {place} is the goal." if n % 3 else f"{person} moves to {place} in May."
        rows.append({"headline": title, "text": text, "events": [event]})
    spec = spec_of(tmp_path, jsonl(tmp_path, rows))
    assert (spec.task, spec.map.text, spec.map.ignore_labels) == ("event", ["headline", "text"], ["stage"])
    assert [len(r.events[0].arguments) for r in records(spec, mirror(tmp_path))] == [2] * 40


def test_arguments_with_fields_of_their_own(tmp_path: Path) -> None:
    rng, rows = random.Random(14), []
    for n in range(40):
        words = sentence(rng).split()
        left, who, where = words.index("left"), 0, next(i for i, w in enumerate(words) if w in PLACES)
        event: dict[str, Any] = {"type": "Leave", "trigger": {"start": left, "end": left + 1}}
        event["source"] = {"start": where, "end": where + 1}
        if n % 2:
            event["actor"] = {"start": who, "end": who + 1}
        rows.append({"tokens": words, "events": [{**event, "arguments": []}]})
    spec = spec_of(tmp_path, jsonl(tmp_path, rows))
    assert (spec.task, {*spec.categories.event["Leave"].roles}) == ("event", {"source", "actor"})
    assert [len(r.events[0].arguments) for r in records(spec, mirror(tmp_path))] == [1, 2] * 20


def test_mentions_with_a_list_of_one_label(tmp_path: Path) -> None:
    rng, rows = random.Random(12), []
    for _ in range(60):
        text, marks = sentence(rng), []
        for label, word in (("person", text.split()[0]), ("thing", text.split()[3])):
            start = text.index(word)
            place = {"start": start, "end": start + len(word), "text": word, "labels": [label]}
            marks.append({"type": "labels", "value": place})
        rows.append({"data": {"text": text}, "annotations": [{"result": marks}]})
    spec = spec_of(tmp_path, put(mirror(tmp_path), "export.json", json.dumps(rows)))
    assert (spec.task, {*spec.categories.entity}) == ("ner", {"person", "thing"})


def test_rows_that_an_annotator_rejected_are_left_out(tmp_path: Path) -> None:
    rng, rows = random.Random(13), []
    for n in range(60):
        text = sentence(rng)
        marks = [{"start": 0, "end": text.index(" "), "label": "person" if n % 5 else "mistake"}]
        rows.append({"text": text, "spans": marks, "answer": "accept" if n % 5 else ["reject", "ignore"][n % 2]})
    spec = spec_of(tmp_path, jsonl(tmp_path, rows))
    assert (spec.task, {*spec.categories.entity}) == ("ner", {"person"})
    assert len(records(spec, mirror(tmp_path))) == 48


def test_lists_in_the_strings_of_a_table(tmp_path: Path) -> None:
    rng, rows, labels = random.Random(14), io.StringIO(newline=""), []
    writer = csv.writer(rows)
    writer.writerow(["token", "tokens", "ner_tags", "topics"])
    for n in range(60):
        words = sentence(rng).split()
        labels.append(["life", "work"][: n % 3])
        writer.writerow([[n], words, ["B-person", *["O"] * (len(words) - 1)], json.dumps(labels[-1])])
    spec = spec_of(tmp_path, put(mirror(tmp_path), "train.csv", rows.getvalue()))
    assert (spec.task, {*spec.categories.entity}) == ("ner", {"person"})
    assert {*spec.map.clean} == {"tokens", "ner_tags"}
    texts = "".join(f'"{sentence(rng)}","{topics}"\n' for topics in labels)
    spec = spec_of(tmp_path, put(mirror(tmp_path), "test.csv", f"text,labels\n{texts}"))
    assert (spec.task, {*spec.categories.label}) == ("multilabel", {"life", "work"})


def test_keys_with_dots_and_question_marks_as_in_flattened_data(tmp_path: Path) -> None:
    rng, rows = random.Random(16), []
    for n in range(60):
        text, flags = sentence(rng), {"Is it rude?": n % 2, "Is it ad?": n % 3 // 2, "Is it v1.0?": n % 5 // 4}
        marks = [{"start": 0, "end": text.index(" "), "label": "person"}]
        rows.append(({"doc.text": text}, {"doc.label?": ["calm", "angry"][n % 2]}, flags, {"doc.marks": marks}))
    spec = spec_of(tmp_path, jsonl(tmp_path, [text | label for text, label, _, _ in rows]))
    assert (spec.map.text, spec.map.label) == (['"doc.text"'], '"doc.label?"')
    assert len(records(spec, mirror(tmp_path))) == 60
    spec = spec_of(tmp_path, jsonl(tmp_path, [text | flags for text, _, flags, _ in rows], "flags.jsonl"))
    assert {*spec.categories.label} == {*rows[0][2]}
    assert len(records(spec, mirror(tmp_path))) == 60
    spec = spec_of(tmp_path, jsonl(tmp_path, [text | marks for text, _, _, marks in rows], "marks.jsonl"))
    assert (spec.task, (spec.map.spans or [])[0].each) == ("ner", '"doc.marks"[]')
    file = [{"data.items": [{"text": sentence(rng), "label": "ab"[n % 2]} for n in range(60)]}]
    spec = spec_of(tmp_path, put(mirror(tmp_path), "nested.json", json.dumps(file[0])))
    assert spec.options["rows"] == ['"data.items"[]']
    assert len(records(spec, mirror(tmp_path))) == 60


def test_tags_that_mark_the_last_token_and_mentions_of_one(tmp_path: Path) -> None:
    rng, lines, mentions = random.Random(15), [], []
    for _ in range(60):
        noun, place = rng.choice(NOUNS), rng.choice(PLACES)
        lines += ["The O", "old B-thing", f"{noun} L-thing", "in O", f"{place} U-place", ""]
        mentions.append([f"old {noun}", place])
    spec = spec_of(tmp_path, put(mirror(tmp_path), "train.conll", "\n".join(lines) + "\n"))
    made = records(spec, mirror(tmp_path))
    assert [[covered(record, span) for span in record.spans] for record in made] == mentions
    assert {*spec.categories.entity} == {"thing", "place"}


def test_a_relation_of_two_names_in_the_text(tmp_path: Path) -> None:
    rng, rows = random.Random(16), []
    for n in range(60):
        person, place, kind = rng.choice(PEOPLE), rng.choice(PLACES), ["left", "found"][n % 2]
        ends = {"h": {"name": person, "type": "person"}, "t": {"name": place, "type": "place"}}
        rows.append({"text": f"On day {n} {person} {kind} a lamp in {place}", **ends, "relation": kind})
    spec = spec_of(tmp_path, jsonl(tmp_path, rows))
    assert spec.task == "relation"
    [one, *_] = records(spec, mirror(tmp_path))
    words = rows[0]["h"]["name"], rows[0]["t"]["name"]
    assert related(one) == [(words[0], "left", words[1])]
