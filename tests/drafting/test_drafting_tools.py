"""Drafts of what other programs write: Label Studio, Prodigy, spaCy, Rasa, Excel, chats and chatbots."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from drafts import PEOPLE, PLACES, mirror, put, records, sentence, spec_of

from pipelines.drafting.draft import draft
from pipelines.drafting.write import text_of
from pipelines.specs import dataset_spec
from ubert.schema.checks import covered
from ubert.schema.record import Record
from ubert.schema.specs.mapping import Offsets, Unit


def names(record: Record) -> list[str]:
    return [record.categories[label].name for label in record.labels]


def test_mentions_and_relations_in_one_list_as_in_label_studio(tmp_path: Path) -> None:
    rng, tasks, expected = random.Random(5), [], []
    for n in range(40):
        person, place, kind = rng.choice(PEOPLE), rng.choice(PLACES), rng.choice(["born_in", "works_in"])
        text = f"On day {n} {person} was in {place}."
        spans = [
            {
                "type": "labels",
                "id": f"{n}{word}",
                "value": {"start": at, "end": at + len(word), "text": word, "labels": [label]},
            }
            for word, label in ((person, "PER"), (place, "LOC"))
            for at in [text.index(word, 5)]
        ]
        joined = {"type": "relation", "from_id": f"{n}{person}", "to_id": f"{n}{place}", "labels": [kind]}
        relations = [{**joined, "direction": "right"}] if n % 3 else []
        tasks.append({"id": n, "data": {"text": text}, "annotations": [{"result": [*spans, *relations]}]})
        expected.append([(person, kind.replace("_", " "), place)] if relations else [])
    spec = spec_of(tmp_path, put(mirror(tmp_path), "export.json", json.dumps(tasks, indent=1)))
    assert (spec.task, {*spec.categories.entity}) == ("relation", {"PER", "LOC"})
    found = records(spec, mirror(tmp_path))
    for record, relations_of in zip(found, expected, strict=True):
        words = [covered(record, span) for span in record.spans]
        assert len(words) == 2
        assert [
            (words[one.head], record.categories[one.category].name, words[one.tail]) for one in record.relations
        ] == relations_of


def test_relations_of_mentions_by_id_as_in_doccano(tmp_path: Path) -> None:
    rng, rows = random.Random(13), []
    for n in range(40):
        person, place = rng.choice(PEOPLE), rng.choice(PLACES)
        text = f"On day {n} {person} was in {place}."
        entities = [
            {"id": 2 * n + k, "label": label, "start_offset": at, "end_offset": at + len(word)}
            for k, (word, label) in enumerate(((person, "PER"), (place, "LOC")))
            for at in [text.index(word, 5)]
        ]
        relation = {"id": n, "from_id": 2 * n, "to_id": 2 * n + 1, "type": ["lives", "works"][n % 2]}
        rows.append({"id": n, "text": text, "entities": entities, "relations": [relation], "Comments": []})
    spec = spec_of(tmp_path, put(mirror(tmp_path), "all.jsonl", "".join(json.dumps(row) + "\n" for row in rows)))
    assert spec.task == "relation"
    found = records(spec, mirror(tmp_path))
    assert [(len(record.spans), len(record.relations)) for record in found] == [(2, 1)] * 40


def test_relations_with_the_places_of_their_ends_as_in_prodigy(tmp_path: Path) -> None:
    """A mention without a relation is kept, and a rejected row isn't."""
    rng, rows = random.Random(9), []
    for n in range(40):
        person, first, second = rng.choice(PEOPLE), *rng.sample(PLACES, 2)
        text = f"On day {n} {person} moved to {first}, not to {second}."
        spans = [
            {"start": at, "end": at + len(word), "token_start": k, "token_end": k, "label": label}
            for k, (word, label) in enumerate(((person, "PER"), (first, "LOC"), (second, "LOC")), 3)
            for at in [text.index(word, 5)]
        ]
        relation = {"head": 3, "child": 4, "head_span": spans[0], "child_span": spans[1], "label": "MOVED"}
        answer = "reject" if n % 8 == 0 else "accept"
        rows.append({"text": text, "spans": spans, "relations": [relation][: n % 3], "answer": answer})
    spec = spec_of(tmp_path, put(mirror(tmp_path), "notes.jsonl", "".join(json.dumps(row) + "\n" for row in rows)))
    found = records(spec, mirror(tmp_path))
    assert (spec.task, len(found)) == ("relation", 35)
    assert all(len(record.spans) == 3 for record in found)
    assert [len(record.relations) for record in found] == [min(n % 3, 1) for n in range(40) if n % 8]


@pytest.mark.parametrize(("yes", "no"), [(1.0, 0.0), (True, False), (1, 0)])
def test_an_object_of_two_flags_as_in_spacy(yes: float, no: float, tmp_path: Path) -> None:
    rng = random.Random(6)
    rows = [
        {"text": f"{n}: {sentence(rng)}", "cats": {"PRAISE": yes if n % 3 else no, "BLAME": no if n % 3 else yes}}
        for n in range(30)
    ]
    spec = spec_of(tmp_path, put(mirror(tmp_path), "train.jsonl", "".join(json.dumps(row) + "\n" for row in rows)))
    assert (spec.task, spec.categories.label) == (
        "classification",
        {"cats.BLAME": "blame", "cats.PRAISE": "praise"},
    )
    found = [names(record) for record in records(spec, mirror(tmp_path))]
    assert found == [["praise"] if n % 3 else ["blame"] for n in range(30)]


@pytest.mark.parametrize("tool", ["rasa", "luis"])
def test_intents_beside_mentions(tool: str, tmp_path: Path) -> None:
    rng, examples, expected = random.Random(10), [], []
    for n in range(40):
        person, place = rng.choice(PEOPLE), rng.choice(PLACES)
        text = f"On day {n} {person} moved to {place}"
        entities = [
            {"start": at, "end": at + len(word), "value": word, "entity": kind}
            if tool == "rasa"
            else {"entity": kind, "startPos": at, "endPos": at + len(word) - 1}
            for word, kind in ((person, "name"), (place, "city"))
            for at in [text.index(word, 5)]
        ]
        examples.append({"text": text, "intent": ["tell", "ask"][n % 2], "entities": entities})
        expected.append([person, place])
    content = {"rasa_nlu_data": {"common_examples": examples}} if tool == "rasa" else {"utterances": examples}
    spec = spec_of(tmp_path, put(mirror(tmp_path), "nlu.json", json.dumps(content, indent=1)))
    assert (spec.task, {*spec.categories.entity}) == ("ner", {"name", "city"})
    found = records(spec, mirror(tmp_path))
    assert [[covered(record, span) for span in record.spans] for record in found] == expected

    written = tmp_path / "specs" / "datasets" / "odd.yaml"
    head, also = written.read_text().split("# also:")
    written.write_text(head + "also:" + also.split("\n#\n")[0].replace("\n# ", "\n") + "\n")
    second = dataset_spec("odd_labels", tmp_path / "specs")
    assert (second.task, second.instruction) == ("classification", "intent")
    assert [names(record) for record in records(second, mirror(tmp_path))] == [["tell"], ["ask"]] * 20


def test_the_turns_of_a_chat(tmp_path: Path) -> None:
    rng, rows, texts = random.Random(11), [], []
    for n in range(40):
        texts.append(f"{n}: {sentence(rng)}")
        turns = [
            ("system", "Name the mood of the text."),
            ("user", texts[-1]),
            ("assistant", ["calm", "angry"][n % 2]),
        ]
        rows.append({"messages": [{"role": role, "content": content} for role, content in turns]})
    spec = spec_of(tmp_path, put(mirror(tmp_path), "chat.jsonl", "".join(json.dumps(row) + "\n" for row in rows)))
    assert (spec.task, {*spec.categories.label}) == ("classification", {"calm", "angry"})
    assert [record.text for record in records(spec, mirror(tmp_path))] == texts


@pytest.mark.parametrize("named", [{"label_text": "{}"}, {"meta": {"class-name": "{}"}}])
def test_a_field_that_names_the_codes_of_another_is_the_label(named: dict[str, Any], tmp_path: Path) -> None:
    rng = random.Random(12)
    rows = [
        {"text": f"{n}: {sentence(rng)}", "label": n % 3, **json.loads(json.dumps(named).replace("{}", name))}
        for n in range(40)
        for name in [["poor", "fair", "good"][n % 3]]
    ]
    spec = spec_of(tmp_path, put(mirror(tmp_path), "train.jsonl", "".join(json.dumps(row) + "\n" for row in rows)))
    assert (spec.task, {*spec.categories.label}) == ("classification", {"poor", "fair", "good"})


@pytest.mark.parametrize("sign", [";", ",", "\t"])
def test_the_first_line_of_excel_is_skipped(sign: str, tmp_path: Path) -> None:
    rng = random.Random(7)
    lines = [f"{n}: {sentence(rng)}{sign}{('spam', 'ham')[n % 2]}" for n in range(30)]
    content = "\ufeff" + "\r\n".join([f"sep={sign}", f"text{sign}label", *lines, ""])
    spec = spec_of(tmp_path, put(mirror(tmp_path), "export.csv", content))
    assert (spec.task, spec.options["skip"], {*spec.categories.label}) == ("classification", 1, {"spam", "ham"})
    assert len(records(spec, mirror(tmp_path))) == 30


PATTERNS = {
    "greeting": ["Hi", "Hello there", "Good day"],
    "farewell": ["Bye", "See you"],
    "hours": ["When are you open?", "What are your hours?"],
}


@pytest.mark.parametrize(
    ("content", "key"),
    [
        (
            {
                "intents": [
                    {"tag": k, "responses": ["Yes, of course."], "patterns": v} for k, v in PATTERNS.items()
                ]
            },
            "tag",
        ),
        ([{"intent": k, "text": v, "responses": ["Well then"] * 9} for k, v in PATTERNS.items()], "intent"),
        (PATTERNS, "label"),
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_texts_listed_by_intent(content: Any, key: str, indent: int | None, tmp_path: Path) -> None:
    spec = spec_of(tmp_path, put(mirror(tmp_path), "intents.json", json.dumps(content, indent=indent)))
    assert (spec.task, spec.map.label) == ("classification", key)
    found = [(record.text, names(record)) for record in records(spec, mirror(tmp_path))]
    assert found == [(text, [intent]) for intent, texts in PATTERNS.items() for text in texts]


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("by_row", [False, True])
def test_the_columns_of_pandas(by_row: bool, indent: int | None, tmp_path: Path) -> None:
    rng = random.Random(8)
    columns = {"text": [f"{n}: {sentence(rng)}" for n in range(30)], "mood": ["calm", "angry"] * 15}
    content = {name: dict(enumerate(values)) for name, values in columns.items()} if by_row else columns
    spec = spec_of(tmp_path, put(mirror(tmp_path), "columns.json", json.dumps(content, indent=indent)))
    assert (spec.task, {*spec.categories.label}) == ("classification", {"calm", "angry"})
    found = records(spec, mirror(tmp_path))
    assert [record.text for record in found] == columns["text"]
    assert [names(record) for record in found] == [[mood] for mood in columns["mood"]]


@pytest.mark.parametrize("comments", ["# from a shop\n", "# from a shop\n#\n# id, text, mood\n"])
@pytest.mark.parametrize("header", ["", "id\ttext\tmood\n", "#id\ttext\tmood\n"])
def test_comments_before_a_table(comments: str, header: str, tmp_path: Path) -> None:
    rng = random.Random(14)
    rows = [f"{n}\t{sentence(rng)}\t{['calm', 'angry'][n % 2]}\n" for n in range(30)]
    given = comments if not header.startswith("#") else ""
    spec = spec_of(tmp_path, put(mirror(tmp_path), "all.tsv", given + header + "".join(rows)))
    assert (spec.task, {*spec.categories.label}) == ("classification", {"calm", "angry"})
    assert spec.options.get("skip", 0) == given.count("\n")
    assert len(records(spec, mirror(tmp_path))) == 30


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("unit", ["utf16", "byte"])
def test_offsets_that_do_not_count_characters(unit: Unit, words: bool, tmp_path: Path) -> None:
    """Few texts have an emoji, and one row is damaged."""
    rng, rows = random.Random(9), []
    for n in range(300):
        text = ("👍 " if n % 40 == 7 else "") + sentence(rng)
        place = text.split(" in ")[1].split()[0]
        start = _size(text[: text.index(place)], unit)
        end = start + _size(place, unit)
        mark = {"start": start if n else 900, "end": end if n else 901, "label": "place"}
        rows.append({"text": text, "marks": [{**mark, **({"text": place} if words else {})}]})
    made = draft([put(mirror(tmp_path), "app.jsonl", "".join(json.dumps(row) + "\n" for row in rows))])
    assert made.best.trial.spec.map.offsets == Offsets(unit=unit)
    assert (made.kept, made.reasons.total()) == (299, 1)
    assert {covered(record, record.spans[0]) for record in made.best.trial.kept} == {*PLACES}
    assert "characters fit fewer texts than" in text_of(made)


def _size(text: str, unit: Unit) -> int:
    return len(text.encode()) if unit == "byte" else len(text.encode("utf-16-le")) // 2
