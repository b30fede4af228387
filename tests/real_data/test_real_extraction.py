"""Real datasets of mentions, relations, events, clusters and answers, against counts measured in their files."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from test_real_datasets import folder_of, ingested, mismatches_of, records_of

from ubert.schema.checks import covered
from ubert.schema.record import Mismatch, Record


def name_of(record: Record, category: int | None) -> str | None:
    return None if category is None else record.categories[category].name


def clusters(record: Record) -> list[set[str]]:
    """The words of each cluster."""
    groups: dict[int | None, set[str]] = {}
    for span in record.spans:
        groups.setdefault(span.group, set()).add(covered(record, span))
    return list(groups.values())


def shifts(mismatches: list[Mismatch]) -> Counter[int | None]:
    """How far from their offsets mentions were found."""
    return Counter(None if m.found is None else m.found - (m.start or 0) for m in mismatches)


@pytest.mark.parametrize(
    ("name", "spans"),
    [
        ("cluener", [11261, 3072]),
        ("restaurant8k", [1832, 3477]),
        ("scierc", [5598, 811, 1685]),
        ("wikievents_ner", [2256, 2673]),
        ("format_examples_gliner_ner", [236]),
        ("format_examples_instructkgc_ner", [3]),
        ("format_examples_instructkgc_ner_instructions", [3]),
        ("format_examples_uie_ner", [3]),
    ],
)
def test_mentions_of_each_file(name: str, spans: list[int]) -> None:
    assert [taken.spans for taken in ingested(name).values()] == spans
    assert not mismatches_of(name)


@pytest.mark.parametrize(
    ("name", "relations"),
    [
        ("scierc_relation", [3219, 455, 974]),
        ("scierc_spert", [3219, 455, 974]),
        ("webnlg_re", [7083, 1224, 1607]),
        ("fewrel", [11200]),
        ("format_examples_instructkgc_relation", [9]),
        ("format_examples_instructkgc_spo", [6]),
    ],
)
def test_relations_of_each_file(name: str, relations: list[int]) -> None:
    found = [sum(len(record.relations) for record in taken.records) for taken in ingested(name).values()]
    assert found == relations


@pytest.mark.parametrize(
    ("name", "events", "arguments"),
    [
        ("casie", 2346, 6252),
        ("crudeoilnews_augmented", 210, None),
        ("duee", 1790, 3696),
        ("wikievents", 345 + 364, None),
        ("format_examples_instructkgc_event", 9, 12),
    ],
)
def test_events_that_are_kept_or_in_a_refused_row(name: str, events: int, arguments: int | None) -> None:
    kept = [event for record in records_of(name) for event in record.events]
    refused = Counter[str]()
    for taken in ingested(name).values():
        for reject in taken.rejects:
            row = json.loads(reject.raw)
            if name == "casie":
                lost = [event for hopper in row["cyberevent"]["hopper"] for event in hopper["events"]]
            else:
                lost = row["golden-event-mentions"]
            refused["events"] += len(lost)
            refused["arguments"] += sum(len(event.get("argument") or ()) for event in lost)
    assert len(kept) + refused["events"] == events
    if arguments is not None:
        assert sum(len(event.arguments) for event in kept) + refused["arguments"] == arguments


def test_nuggets_of_casie_are_shifted_by_one_or_two_or_are_not_there() -> None:
    found = mismatches_of("casie")
    triggers = [mismatch for mismatch in found if mismatch.kind == "trigger"]
    assert (len(triggers), len(found) - len(triggers)) == (34, 98)
    assert shifts(triggers) == {-1: 25, -2: 6, -12: 2, None: 1}
    assert shifts(mismatches_of("casie_coref")) == shifts(triggers)
    types = Counter(name_of(record, event.category) for record in records_of("casie") for event in record.events)
    assert types["ransom attack"] == 378 and types["discovery of a vulnerability"] == 656


def test_a_slot_without_a_start_begins_with_the_text() -> None:
    kinds = [
        Counter(name_of(record, span.category) for record in taken.records for span in record.spans)
        for taken in ingested("restaurant8k").values()
    ]
    assert [kind["number of people"] for kind in kinds] == [539, 983]
    assert [kind["last name"] for kind in kinds] == [192, 426]
    found = [
        sum(span.start == 0 for r in taken.records for span in r.spans)
        for taken in ingested("restaurant8k").values()
    ]
    assert found == [311, 597]


def test_answers_of_cmrc_that_are_not_at_their_offsets() -> None:
    found = mismatches_of("cmrc2018")
    assert shifts(found) == {None: 112, -1: 3, -2: 4}
    assert {mismatch.start for mismatch in found if mismatch.found is None} == {-1}
    assert len(mismatches_of("cmrc2018_trial")) == 77


def test_both_forms_of_scierc_hold_the_same_annotations() -> None:
    documents, sentences = records_of("scierc_relation"), records_of("scierc_spert")
    brackets = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}

    def words(record: Record, i: int) -> str:
        return " ".join(brackets.get(word, word) for word in covered(record, record.spans[i]).split(" "))

    def annotations(records: list[Record]) -> tuple[Counter[object], Counter[object]]:
        spans = Counter[object](
            (words(r, i), name_of(r, span.category)) for r in records for i, span in enumerate(r.spans)
        )
        relations = Counter[object](
            (words(r, x.head), name_of(r, x.category), words(r, x.tail)) for r in records for x in r.relations
        )
        return spans, relations

    assert annotations(documents) == annotations(sentences)


def test_entities_of_wikipedia_articles_are_clusters() -> None:
    records = records_of("redocred")
    assert (len(mismatches_of("redocred")), len(mismatches_of("redocred", "exact"))) == (2, 161)
    # 17 of 6638 mentions are given twice; the two refused documents have 58 mentions and 50 relations.
    assert sum(len(record.spans) for record in records) == 6638 - 17 - 58
    assert sum(len(record.relations) for record in records) == 9096 - 50
    assert len({name_of(r, relation.category) for r in records for relation in r.relations}) == 94
    assert len([c for c in records[0].categories if c.kind == "relation"]) == 96
    assert {"Schneider", 'Wilfried " Willi " Schneider'} in clusters(records_of("redocred_coref")[0])


def test_an_entity_of_fewrel_may_be_mentioned_several_times() -> None:
    records = records_of("fewrel")
    assert (len(mismatches_of("fewrel")), len(mismatches_of("fewrel", "exact"))) == (0, 19253)
    several = sum(len({span.group for span in r.spans if span.group is not None}) for r in records)
    assert several == 425
    assert len({name_of(record, record.relations[0].category) for record in records}) == 16


@pytest.mark.parametrize(("split", "neither"), [("train", 201), ("validation", 62)])
def test_a_pronoun_of_gap_means_one_name_or_neither(split: str, neither: int) -> None:
    records = [record for record in records_of("gap_coref") if record.split == split]
    alone = sum(all(record.spans[0].group != span.group for span in record.spans[1:]) for record in records)
    assert alone == neither


@pytest.mark.parametrize(("split", "path"), [("validation", "dev"), ("test", "test")])
def test_clusters_of_wikievents_are_those_of_the_file_beside(split: str, path: str) -> None:
    lines = (folder_of("wikievents_coref") / f"coref/{path}.jsonlines").read_text(encoding="utf-8").splitlines()
    records = [record for record in records_of("wikievents_coref") if record.split == split]
    sizes = [Counter(span.group for span in record.spans) for record in records]
    found = [sorted(size for size in of_record.values() if size > 1) for of_record in sizes]
    assert sorted(found) == sorted(sorted(map(len, json.loads(line)["clusters"])) for line in lines)


def test_documents_of_scierc_have_their_clusters() -> None:
    lines = (folder_of("scierc_coref") / "original_json/dev.json").read_text(encoding="utf-8").splitlines()
    records = [record for record in records_of("scierc_coref") if record.split == "validation"]
    assert [len(clusters(record)) for record in records] == [len(json.loads(line)["clusters"]) for line in lines]


def test_arguments_of_financial_events_are_the_first_of_their_words() -> None:
    records = records_of("duee_fin")
    assert sum(not record.events for record in records) == 57
    # Left out are 38 stages of a launch that are no words of the text, and others that are.
    assert sum(len(event.arguments) for record in records for event in record.events) == 2931
    titled = [record.text.split("\n", 1)[0] for record in records]
    firsts = [record.spans[event.trigger or 0].start for record in records for event in record.events]
    ends = [len(title) for record, title in zip(records, titled, strict=True) for _ in record.events]
    assert sum(first < end for first, end in zip(firsts, ends, strict=True)) > len(firsts) / 2
    mismatches = mismatches_of("duee_fin")
    assert Counter(mismatch.kind for mismatch in mismatches) == {"argument": 1237, "trigger": 539}
    assert all(mismatch.places > 1 and mismatch.found is not None for mismatch in mismatches)


def test_entities_of_oil_news_that_are_not_at_their_offsets() -> None:
    entities = [m for m in mismatches_of("crudeoilnews_augmented") if m.kind == "mention"]
    assert len(entities) == 9
    roles = Counter(
        name_of(record, argument.role)
        for record in records_of("crudeoilnews_augmented")
        for event in record.events
        for argument in event.arguments
    )
    assert roles["modality cue"] and roles["intensity cue"] and roles["polarity cue"]


def test_examples_of_ubert_have_the_candidates_that_come_with_them() -> None:
    (news,) = records_of("format_examples_ubert_classification")
    assert [c.name for c in news.categories] == ["一则股票新闻", "一则教育新闻", "一则科学新闻"]
    assert news.labels == [0]
    assert [(r.task, len(r.categories), r.labels) for r in records_of("format_examples_ubert_choice")] == [
        ("choice", 3, [0]),
        ("choice", 2, [0]),
    ]
    (event,) = records_of("format_examples_ubert_ner")
    assert [(covered(event, span), name_of(event, span.category)) for span in event.spans] == [
        ("小米9", "降价的降价物")
    ]
    answers = [covered(r, span) for r in records_of("format_examples_ubert_qa") for span in r.spans]
    assert answers == ["生物技术发展", "美国海军", "第八"]
