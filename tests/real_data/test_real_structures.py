"""Real datasets of entities, relations, events and aspects, against counts measured in their files."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest
from test_real_datasets import folder_of, ingested, records_of

from ubert.schema.checks import covered
from ubert.schema.record import Record


def entities(records: list[Record]) -> dict[str, int]:
    """How many mentions of each category there are."""
    categories = (r.categories[s.category].name for r in records for s in r.spans if s.category is not None)
    return dict(Counter(categories))


def relations(records: list[Record]) -> dict[str, int]:
    return dict(Counter(r.categories[relation.category].name for r in records for relation in r.relations))


@pytest.mark.parametrize(
    ("name", "spans"),
    [
        ("bc5cdr", [6857 + 2413, 7416 + 2246]),  # begun by I-, and by B-
        ("bionlp_st_2013_cg_ner", [10935, 3634]),
        ("bionlp_st_2013_ge_ner", [3571, 4138]),
        ("genia_event_xml_ner", [5739]),
        ("genia_nested", [3983 + 354, 4920 + 539 + 15]),  # by level of nesting
        ("genia_nested_pipe", [174, 173, 177]),
        ("germeval2014", [2674 + 212, 6178 + 515]),  # outer and inner
        ("litbank", [1326]),
        ("litbank_sentences", [1188 + 127 + 10 + 1]),  # by level of nesting
        ("mams_absa", [11186, 1332, 1336]),
        ("resume_ner_zh", [13438 - 12, 1497, 1630]),  # 12 in what is refused
        ("semeval2014_absa_laptops_terms", [2358, 654]),
        ("semeval2014_absa_restaurants_terms", [3693, 1134]),
    ],
)
def test_entities_of_each_split(name: str, spans: list[int]) -> None:
    by_split: Counter[str] = Counter()
    for (split, _), taken in ingested(name).items():
        by_split[split] += taken.spans
    assert list(by_split.values()) == spans


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("bc5cdr", [95370, 98691]),
        ("genia_nested", [48932, 57021]),
        ("litbank_events", [792 + 20772]),
        ("litbank_sentences", [19562 + 2002]),
    ],
)
def test_tokens_of_each_split(name: str, tokens: list[int]) -> None:
    """A text is its tokens joined by a space, and no token of these files holds one."""
    by_split: Counter[str] = Counter()
    for record in records_of(name):
        by_split[record.split] += record.text.count(" ") + 1
    assert list(by_split.values()) == tokens


def test_types_of_german_names() -> None:
    types = ["PER", "ORG", "LOC", "OTH"]
    names = ["Person", "Organisation", "Ort", "sonstiger Eigenname"]
    outer = {"OTH": 269, "PER": 711, "ORG": 496, "LOC": 763}
    found = entities([record for record in records_of("germeval2014") if record.split == "validation"])
    assert len(found) == 12
    assert all(found[name] >= outer[label] for label, name in zip(types, names, strict=True))  # and inner ones


def test_a_chinese_text_is_its_characters() -> None:
    tokens = [sum(len(record.text) for record in taken.records) for taken in ingested("resume_ner_zh").values()]
    assert tokens[1:] == [13890, 15100]
    first = next(iter(ingested("resume_ner_zh")["validation", "dev.char.bmes"].records))
    assert [covered(first, span) for span in first.spans][:2] == ["吴重阳", "中国国籍"]


def test_all_effects_and_doses_of_a_sentence_are_in_one_record() -> None:
    for name, sentences, relation, count in (
        ("ade_corpus", 4272, "has adverse effect", 6821),
        ("ade_corpus_dose", 213, "has dose", 279),
    ):
        records = records_of(name)
        assert (len(records), relations(records)) == (sentences, {relation: count})
    lines = (folder_of("ade_corpus") / "DRUG-AE.rel").read_text(encoding="utf-8").splitlines()
    said = {(row[1], row[5], row[2]) for row in (line.split("|") for line in lines)}
    found = {
        (r.text, covered(r, r.spans[x.head]), covered(r, r.spans[x.tail]))
        for r in records_of("ade_corpus")
        for x in r.relations
    }
    assert found == said


def test_sentences_with_and_without_adverse_effects() -> None:
    labels = [taken.labels for taken in ingested("ade_corpus_sentences").values()]
    assert labels == [{"adverse effect": 4272}, {"no adverse effect": 3000}]


@pytest.mark.parametrize(
    ("name", "triplets"), [("aste_14lap", [1460, 346, 543]), ("aste_14res", [2338, 577, 994])]
)
def test_triplets_of_each_file(name: str, triplets: list[int]) -> None:
    found = [sum(len(record.relations) for record in taken.records) for taken in ingested(name).values()]
    assert found == triplets


def test_relations_between_nominals_and_their_direction() -> None:
    train, test = ingested("semeval2010_task8").values()
    assert (sum(not r.relations for r in train.records), sum(not r.relations for r in test.records)) == (1410, 454)
    assert all(len(record.spans) == 2 for record in train.records)
    moved = [r for r in train.records for x in r.relations if r.categories[x.category].name == "moved to"]
    assert Counter(r.relations[0].head < r.relations[0].tail for r in moved) == {True: 844, False: 1}
    labels = [taken.labels for taken in ingested("semeval2010_task8_labels").values()]
    assert [len(found) for found in labels] == [19, 19]
    assert (labels[0]["e1 is moved to e2"], labels[0]["e1 is a member of e2"]) == (844, 78)
    assert (labels[1]["another relation"], labels[1]["e1 is the instrument of e2"]) == (454, 22)


def test_sentiments_about_aspects() -> None:
    laptops = dict(neutral=460, positive=987, negative=866, conflict=45)
    restaurants = dict(negative=805, positive=2164, neutral=633, conflict=91)
    for name, said in (("laptops", laptops), ("restaurants", restaurants)):
        said["aspect seen both ways"] = said.pop("conflict")
        counts = {label if " " in label else f"{label} aspect": count for label, count in said.items()}
        assert entities(records_of(f"semeval2014_absa_{name}")) == counts
    polarities = [entities(taken.records) for taken in ingested("mams_absa").values()]
    assert [found["neutral aspect"] for found in polarities] == [5042, 604, 607]


def test_what_reviews_are_about() -> None:
    train, test = (taken.labels for taken in ingested("semeval2014_absa_restaurants_categories").values())
    # Two sentences of 1132 name this one twice.
    assert train.pop("anecdotes or miscellaneous") == 1132 - 2
    assert train == dict(service=597, food=1232, price=321, ambience=431)
    assert test == dict(food=418, service=172, ambience=118, price=83) | {"anecdotes or miscellaneous": 234}
    validation, held_out = (taken.labels for taken in ingested("mams_absa_categories").values())
    eight = ["miscellaneous", "food", "staff", "service", "menu", "place", "price", "ambience"]
    assert [validation[name] for name in eight] == [129, 290, 165, 84, 51, 88, 45, 36]
    assert [held_out[name] for name in eight] == [136, 291, 169, 78, 76, 81, 38, 32]
    for pairs, about in (("semeval2014_absa_restaurants_polarity", train), ("mams_absa_polarity", validation)):
        asked = Counter(record.pair for record in next(iter(ingested(pairs).values())).records)
        assert all(asked[name] == count for name, count in about.items())


def test_events_of_cancer_genetics() -> None:
    for split, entity, trigger, events in (
        ("train", 10935, 7469, 8803),
        ("validation", 3634, 2451, 2915),
    ):
        records = [record for record in records_of("bionlp_st_2013_cg") if record.split == split]
        assert sum(len(record.spans) for record in records) == entity + trigger
        assert sum(len(record.events) for record in records) == events
    kinds = {r.categories[event.category].name for r in records_of("bionlp_st_2013_cg") for event in r.events}
    assert len(kinds) == 40


def test_anaphors_of_genia_and_its_json_twins() -> None:
    counts = Counter(r.split for r in records_of("bionlp_st_2013_ge_coref") for _ in r.relations)
    assert counts == {"train": 178, "validation": 160}
    twins = {record.source.path.removesuffix(".json"): record for record in records_of("bionlp_st_2013_ge_json")}
    of_brat = {record.source.path.removesuffix(".txt"): record for record in records_of("bionlp_st_2013_ge_coref")}
    for path, twin in twins.items():
        record = of_brat[path]
        assert twin.text == record.text
        places = [
            sorted((s.start, s.end, r.categories[s.category or 0].name) for s in r.spans) for r in (twin, record)
        ]
        assert places[0] == places[1]


def test_nested_events_of_genia_in_xml() -> None:
    records = records_of("genia_event_xml")
    # 17 of 4297 events, and 2 of 77 without a trigger, are in the abstract that is refused.
    assert sum(len(record.events) for record in records) == 4297 - 17
    assert sum(event.trigger is None for record in records for event in record.events) == 77 - 2
    arguments = [argument for record in records for event in record.events for argument in event.arguments]
    assert sum(argument.event is not None for argument in arguments) > 2500
    titles = {record.text.partition("\n")[0] for record in records}
    assert "Paradoxical priming effects of IL-10 on cytokine production." in titles


def test_fiction_is_the_same_text_in_all_its_forms() -> None:
    assert sum(len(record.events) for record in records_of("litbank_events")) == 792
    clusters, links = records_of("litbank_coref"), records_of("litbank_links")
    assert [sum(len(r.spans) for r in records) for records in (clusters, links)] == [2714, 2714]
    assert relations(links) == {"predicate of": 58, "apposition to": 13}
    for one, other in zip(clusters, links, strict=True):
        assert one.text.split() == other.text.split()
        words = [sorted(covered(r, s).replace("\n", " ") for s in r.spans) for r in (one, other)]
        assert words[0] == words[1]
    for book, group in (("11_alices", "Alice"), ("113_the_secret", "Mary Lennox")):
        (record,) = (r for r in clusters if f"/{book}" in r.source.path)
        largest = Counter(span.group for span in record.spans).most_common(1)[0][0]
        assert group in {covered(record, span) for span in record.spans if span.group == largest}


def test_whole_books_and_their_sentences_have_the_same_mentions() -> None:
    whole, sentences = (entities(records_of(name)) for name in ("litbank", "litbank_sentences"))
    assert whole == sentences


def test_no_mention_is_found_elsewhere_than_it_says() -> None:
    """No spec here seeks mentions: their words are at their offsets, or the row is refused."""
    names = ["ade_corpus", "genia_event_xml", "litbank_links", "mams_absa", "bionlp_st_2013_cg"]
    rejects = chain.from_iterable(taken.rejects for name in names for taken in ingested(name).values())
    assert [reject.reason for reject in rejects] == ["dangling event"]
