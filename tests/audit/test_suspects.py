"""Suspects: wrong labels, mentions and answers are found and explained, and mixtures drop them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from handmade import ner, question, record, sentiment
from msgspec.structs import replace
from object_store import ObjectStore
from tiny_run import make_encoder
from typer.testing import CliRunner
from worlds import put_corpus

from pipelines.cli.commands import app
from pipelines.mixtures.mix import composition, mix
from pipelines.mixtures.replay import trained_on
from pipelines.report.page import html
from pipelines.store.storage import SCHEME, ObjectPath
from pipelines.store.store import Store, now, write_json
from pipelines.store.warehouse import sql
from pipelines.suspects import labels
from pipelines.suspects.evidence import Suspect, ranked
from pipelines.suspects.fold import Fold, fold_of, place_of, prediction_rows, run_fold
from pipelines.suspects.labels import softmax, suspicious_labels
from pipelines.suspects.mentions import Mention, Predicted, suspicious_mentions
from pipelines.suspects.start import DEFAULT, default_recipe, starting_from
from pipelines.suspects.suspects import contradicted, folds_of, suspects
from ubert.objectives import DiscontinuousPrediction, LabelPrediction, SpanPrediction
from ubert.objectives.common import probability
from ubert.schema.dynamics import SCHEMA
from ubert.schema.errors import UserError
from ubert.schema.manifest import MixtureManifest, ShardFile, ShardManifest, fingerprint
from ubert.schema.record import Record, Span
from ubert.schema.specs.mixture import Mixture
from ubert.schema.specs.recipe import Recipe, Replay

REVIEWS = [sentiment(i) for i in range(100)]
WRONG = {"reviews/train/7", "reviews/train/40", "reviews/train/81"}


def flipped(one: Record) -> Record:
    return replace(one, labels=[(one.labels[0] + 1) % 3]) if one.record_id in WRONG else one


def told_labels(records: list[Record]) -> dict[str, dict[str, float]]:
    """What a model says that is right nine times in ten, and mostly surely."""
    draw = random.Random(0)
    found = {}
    for one in records:
        right = one.labels[0] if draw.random() < 0.9 else draw.randrange(3)
        sure = draw.uniform(0.6, 0.95)
        scores = [sure if i == right else (1 - sure) / 2 for i in range(3)]
        found[one.record_id] = dict(zip([c.name for c in one.categories], scores, strict=True))
    return found


def test_planted_labels_come_first_and_say_what_is_wrong() -> None:
    noisy = list(map(flipped, REVIEWS))
    found = ranked(suspicious_labels(noisy, told_labels(REVIEWS)), "a test").to_pylist()
    assert WRONG.issubset(row["record_id"] for row in found[:12])
    assert all(row["flagged"] for row in found if row["record_id"] in WRONG)
    [seventh] = [row for row in found if row["record_id"] == "reviews/train/7"]
    assert (seventh["kind"], seventh["said"], seventh["predicted"]) == (
        "wrong label",
        "opinion number 2",
        "opinion number 1",
    )
    assert [row["rank"] for row in found] == sorted(row["rank"] for row in found)


def test_records_are_ranked_by_their_worst_annotation() -> None:
    def suspect(number: int, score: float) -> Suspect:
        return Suspect(REVIEWS[number], "wrong label", f"said {score}", None, 0.125, score, score > 0.5)

    given = [suspect(3, 0.25), suspect(2, 0.5), suspect(1, 0.5), suspect(3, 0.75)]
    rows = ranked(given, "a test").to_pylist()
    assert [(row["record_id"], row["rank"], row["score"], row["said"], row["flagged"]) for row in rows] == [
        ("reviews/train/3", 1, 0.75, "said 0.75", True),
        ("reviews/train/3", 1, 0.25, "said 0.25", False),
        ("reviews/train/1", 2, 0.5, "said 0.5", False),
        ("reviews/train/2", 3, 0.5, "said 0.5", False),
    ]
    assert {(row["corpus"], row["split"], row["confidence"], row["source"]) for row in rows} == {
        ("reviews", "train", 0.125, "a test")
    }


def test_independent_probabilities_become_a_distribution() -> None:
    assert softmax([0.8, 0.2]) == pytest.approx([16 / 17, 1 / 17])
    assert softmax([0.5, 0.5, 0.5]) == pytest.approx([1 / 3] * 3)
    assert softmax([1.0, 0.0]) == pytest.approx([1.0, 0.0], abs=1e-6)


def test_labels_are_compared_by_name_whatever_their_order() -> None:
    def found(records: list[Record]) -> list[tuple[str, str | None, str | None, float]]:
        every = suspicious_labels(records, told_labels(REVIEWS))
        return [(one.record.record_id, one.said, one.predicted, round(one.score, 9)) for one in every]

    noisy = list(map(flipped, REVIEWS))
    turned = [
        replace(one, categories=one.categories[::-1], labels=[2 - one.labels[0]]) if number % 2 else one
        for number, one in enumerate(noisy)
    ]
    assert found(turned) == found(noisy) != []


def test_a_record_without_its_label_is_no_suspect() -> None:
    noisy = list(map(flipped, REVIEWS))
    noisy[11] = replace(noisy[11], labels=[])
    found = {one.record.record_id for one in suspicious_labels(noisy, told_labels(REVIEWS))}
    assert noisy[11].record_id not in found and found >= WRONG


def test_labels_that_are_all_the_same_are_reported_without_a_flag() -> None:
    records = [replace(one, labels=[0]) for one in REVIEWS[:5]]
    names = [category.name for category in records[0].categories]
    told = {one.record_id: dict(zip(names, (0.8, 0.2, 0.2), strict=True)) for one in records}
    told["reviews/train/3"] = dict(zip(names, (0.2, 0.8, 0.2), strict=True))
    [found] = suspicious_labels(records, told)
    assert (found.record.record_id, found.predicted, found.flagged) == ("reviews/train/3", names[1], False)
    assert (found.confidence, found.score) == pytest.approx((8 / 9, 17 / 18))


def test_options_of_their_own_are_compared_by_their_place() -> None:
    options = [
        record("quiz", i, "choice", f"riddle {i}", [f"a{i}", f"b{i}"], labels=[i % 2 if i else 1])
        for i in range(40)
    ]
    told = {
        one.record_id: {f"a{i}": 0.9 - 0.8 * (i % 2), f"b{i}": 0.1 + 0.8 * (i % 2)}
        for i, one in enumerate(options)
    }
    [found] = suspicious_labels(options, told)
    assert (found.record.record_id, found.said, found.predicted) == ("quiz/train/0", "b0", "a0")


def test_missed_and_spurious_labels_of_many() -> None:
    names = ["red", "green", "blue"]
    many = [
        record("tags", i, "multilabel", f"thing {i}", names, labels=[0] if i % 2 else [0, 1]) for i in range(40)
    ]
    told = {one.record_id: {name: 0.9 if j in one.labels else 0.1 for j, name in enumerate(names)} for one in many}
    many[3] = replace(many[3], labels=[0, 2])
    many[4] = replace(many[4], labels=[0])
    many[5] = replace(many[5], labels=[])
    found = list(suspicious_labels(many, told))
    assert {(one.record.record_id, one.kind, one.said, one.predicted) for one in found} == {
        ("tags/train/3", "spurious label", "blue", None),
        ("tags/train/4", "missed label", None, "green"),
        ("tags/train/5", "missed label", None, "red"),
    }
    assert [one.confidence for one in found] == pytest.approx([0.9] * 3) and all(one.score > 0.5 for one in found)


def reliable(count: int) -> tuple[list[Record], dict[str, Predicted]]:
    """Records whose mentions a model finds surely."""
    records = [ner(i) for i in range(count)]
    told = {}
    for one in records:
        mentions = [Mention(span.start, span.end, one.categories[span.category or 0].name) for span in one.spans]
        told[one.record_id] = Predicted(dict.fromkeys(mentions, 0.9), mentions)
    return records, told


def test_each_kind_of_wrong_mention_is_distinguished_from_the_others() -> None:
    records, told = reliable(30)
    assert list(suspicious_mentions(records, told)) == []
    person, place = records[0].spans
    changed = {
        0: [place],  # missed: the person
        1: [*records[1].spans, replace(place, start=-6 + len(records[1].text), end=len(records[1].text) - 1)],
        2: [replace(records[2].spans[0], category=2), records[2].spans[1]],  # a firm
        3: [replace(records[3].spans[0], end=records[3].spans[0].end - 2), records[3].spans[1]],
    }
    for i, spans in changed.items():
        records[i] = replace(records[i], spans=spans)
    found = {one.record.record_id: one for one in suspicious_mentions(records, told)}
    kinds = {
        f"people/train/{i}": kind for i, kind in enumerate(("missed", "spurious", "wrong type", "wrong boundary"))
    }
    assert {record_id: one.kind for record_id, one in found.items()} == kinds
    missed, wrong = found["people/train/0"], found["people/train/2"]
    assert (missed.said, missed.predicted, missed.confidence) == (None, "Ada Lovelace [person]", 0.9)
    assert (wrong.said, wrong.predicted) == ("Lise Meitner [firm]", "Lise Meitner [person]")
    assert missed.flagged and 0 < missed.score < 0.9 and person.category == 0


def test_a_model_that_finds_little_accuses_nobody() -> None:
    records, told = reliable(30)
    silent = {record_id: Predicted({}, []) for record_id in list(told)[:27]}
    found = list(suspicious_mentions(records, told | silent))
    assert found and not any(one.flagged for one in found)


def test_answers_that_overlap_with_any_right_one_are_none() -> None:
    records = [question(i) for i in range(30)]
    told = {}
    for one in records:
        span = one.spans[0] if one.spans else None
        own = [Mention(span.start, span.end, one.categories[0].name)] if span else []
        told[one.record_id] = Predicted(dict.fromkeys(own, 0.9), own)
    assert list(suspicious_mentions(records, told)) == []
    elsewhere = Mention(0, 3, records[1].categories[0].name)
    told["questions/train/1"] = Predicted({elsewhere: 0.8}, [elsewhere])
    told["questions/train/3"] = Predicted({elsewhere._replace(category=records[3].categories[0].name): 0.8}, [])
    told["questions/train/2"] = Predicted({}, [])
    found = {one.record.record_id: (one.kind, one.predicted) for one in suspicious_mentions(records, told)}
    assert found == {"questions/train/1": ("wrong answer", "Nie"), "questions/train/2": ("spurious answer", None)}


MEETING = "Ada Lovelace met Bob in Oslo"


def met() -> tuple[list[Record], dict[str, Predicted]]:
    """Records of one text, and predictions that find two of three persons and one of three places. Two of seven
    predicted persons and one of two places are right."""

    def mention(start: int, end: int, category: str = "person") -> Mention:
        return Mention(start, end, category)

    ada, bob, oslo = Span(0, 12, 0), Span(17, 20, 0), Span(24, 28, 1)
    spans = [
        [ada, bob, oslo, Span(0, 3, 1, side="pair"), Span(13, 16, None)],
        [ada, oslo],
        [replace(bob, category=1)],
    ]
    records = [
        record("met", number, "ner", MEETING, ["person", "place"], spans=own, pair="Ada")
        for number, own in enumerate(spans)
    ]
    right = {mention(0, 12): 0.9, mention(17, 20): 0.9, mention(24, 28, "place"): 0.8}
    cut = {mention(4, 12): 0.7, mention(0, 3): 0.8, mention(12, 16, "place"): 0.9}
    other = {mention(17, 20): 0.75, mention(17, 23): 0.9, mention(13, 16): 0.6}
    told = [
        Predicted(right, list(right)),
        Predicted({**cut, mention(0, 12): 0.25, mention(24, 28, "place"): 0.5}, list(cut)),
        Predicted(other, list(other)),
    ]
    return records, {one.record_id: own for one, own in zip(records, told, strict=True)}


def test_a_mention_is_as_suspect_as_the_model_is_sure_and_reliable() -> None:
    found = list(suspicious_mentions(*met()))
    assert [(one.record.record_id, one.kind, one.said, one.predicted) for one in found] == [
        ("met/train/1", "wrong boundary", "Ada Lovelace [person]", "Ada [person]"),
        ("met/train/1", "spurious", "Oslo [place]", None),
        ("met/train/1", "missed", None, " met [place]"),
        ("met/train/2", "wrong type", "Bob [place]", "Bob [person]"),
        ("met/train/2", "missed", None, "met [person]"),
    ]
    assert [one.confidence for one in found] == pytest.approx([0.8, 0.5, 0.9, 0.75, 0.6])
    persons = 2 / 7
    scores = [0.8 * 0.75 * persons, 0.5 / 3, 0.9 / 2, 0.75 * persons, 0.6 * persons]
    assert [one.score for one in found] == pytest.approx(scores)


def test_an_answer_is_as_suspect_as_the_model_is_sure_and_reliable() -> None:
    """The model finds two of six answers, and two of its four are right."""
    ada, bob, oslo = Span(0, 3, 0), Span(17, 20, 0), Span(24, 28, 0)
    spans = [[ada, bob], [ada, bob, replace(oslo, category=1)], [], [ada]]
    records = [
        record("met", number, "qa", MEETING, ["Who?", "Where?"], spans=own) for number, own in enumerate(spans)
    ]
    who = {name: Mention(span.start, span.end, "Who?") for name, span in (("a", ada), ("b", bob), ("o", oslo))}
    where = who["o"]._replace(category="Where?")
    scores = [
        {who["a"]: 0.9},
        {who["o"]: 0.8, who["a"]: 0.125, who["b"]: 0.25, where: 0.9},
        {who["o"]: 0.6},
        {who["a"]: 0.25},
    ]
    holding = [[who["a"]], [who["o"], where], [who["o"]], []]
    told = [Predicted(*own) for own in zip(scores, holding, strict=True)]
    ids = [one.record_id for one in records]
    found = list(suspicious_mentions(records, dict(zip(ids, told, strict=True))))
    assert [(one.record.record_id, one.kind, one.said, one.predicted) for one in found] == [
        ("met/train/1", "wrong answer", "Ada", "Oslo"),
        ("met/train/2", "missed answer", None, "Oslo"),
        ("met/train/3", "spurious answer", "Ada", None),
    ]
    assert [one.confidence for one in found] == pytest.approx([0.8, 0.6, 0.75])
    assert [one.score for one in found] == pytest.approx([0.8 * 0.75 / 2, 0.6 / 2, 0.75 / 3])


def test_predictions_of_folds_say_what_was_predicted() -> None:
    records, told = met()
    rows: list[dict[str, Any]] = [
        {"record_id": record_id, **mention._asdict(), "score": score, "holds": mention in own.holding}
        for record_id, own in told.items()
        for mention, score in own.scores.items()
    ]
    assert list(contradicted(records, rows)) == list(suspicious_mentions(records, told))
    noisy, scores = list(map(flipped, REVIEWS)), told_labels(REVIEWS)
    rows = [
        {"record_id": record_id, "category": name, "start": None, "end": None, "score": score, "holds": False}
        for record_id, own in scores.items()
        for name, score in own.items()
    ]
    assert list(contradicted(noisy, rows)) == list(suspicious_labels(noisy, scores))


class Answers:
    """A predictor whose answers are given, and what it was asked."""

    def __init__(self, *given: Any) -> None:
        self.given = given
        self.asked: list[Any] = []

    def answer(self, queries: Any, thresholds: Any, overlap: str) -> Iterator[Any]:
        self.asked = [(query.task, thresholds(query.task), overlap) for query in queries]
        return iter(self.given)


def test_each_label_has_a_row_with_its_score() -> None:
    names = [category.name for category in REVIEWS[0].categories]
    told = Answers(*([[LabelPrediction(names[0], 0.75), LabelPrediction(names[1], 0.5)]] for _ in range(2)))
    rows = list(prediction_rows(cast(Any, told), REVIEWS[:2]))
    assert [(row["record_id"], row["category"], row["start"], row["score"], row["holds"]) for row in rows] == [
        (f"reviews/train/{number}", name, None, score, score > 0.5)
        for number in range(2)
        for name, score in zip(names, (0.75, 0.5), strict=False)
    ]
    assert {task for task, *_ in told.asked} == {"multilabel"}
    assert all(least < probability(-30.0) for _, [least], _ in told.asked), "the surest errors need a score"


def test_each_fragment_of_a_mention_has_a_row_and_holds_where_the_mention_does() -> None:
    def span(start: int, end: int, score: float) -> SpanPrediction:
        return SpanPrediction(start, end, "person", ner(0).text[start:end], score)

    sure, unsure = span(0, 12, 0.9), span(13, 17, 0.25)
    apart = DiscontinuousPrediction("person", (span(0, 3, 0.75), span(21, 27, 0.6)), 0.6)
    told = Answers([[sure, unsure, apart], [sure, apart]], [[], []])
    rows = list(prediction_rows(cast(Any, told), [ner(0), ner(1)]))
    assert [(row["start"], row["end"], row["score"], row["holds"]) for row in rows] == [
        (0, 12, 0.9, True),
        (13, 17, 0.25, False),
        (0, 3, 0.75, True),
        (21, 27, 0.6, True),
    ]
    assert {row["record_id"] for row in rows} == {"people/train/0"}
    assert told.asked == [("ner", [0.01, 0.5], "nested")] * 2


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder(tmp_path_factory.mktemp("encoder") / "tiny")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("store")
    put_corpus(root, "reviews", list(map(flipped, REVIEWS)))
    put_corpus(root, "people", [ner(i) for i in range(20)])
    return root


def brief(encoder: Path) -> Recipe:
    return DEFAULT.model_copy(update={"encoder": str(encoder), "steps": 2, "epochs": None, "max_tokens": 48})


def run_all(root: Path, corpus: str, recipe: Recipe) -> list[Fold]:
    every = folds_of(Store(root).current("corpora", corpus)[1], recipe, 2)
    for fold in every:
        run_fold(fold, root)
    return every


def test_no_fold_judges_what_it_was_trained_on(
    root: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learnt: list[set[str]] = []
    judged: list[set[str]] = []

    def noted(into: list[set[str]], records: Sequence[Record]) -> list[Any]:
        into.append({one.record_id for one in records})
        return []

    monkeypatch.setattr("pipelines.suspects.fold.trained", lambda _, records, folder: noted(learnt, records))
    monkeypatch.setattr("pipelines.suspects.fold.prediction_rows", lambda _, records: noted(judged, records))
    (tmp_path / "corpora").symlink_to(root / "corpora")
    run_all(tmp_path, "reviews", brief(encoder))
    everything = {one.record_id for one in REVIEWS}
    assert [one | other for one, other in zip(learnt, judged, strict=True)] == [everything] * 2
    assert not any(one & other for one, other in zip(learnt, judged, strict=True))


@pytest.mark.parametrize("corpus", ["reviews", pytest.param("people", marks=pytest.mark.slow)])
def test_folds_are_kept_and_each_record_is_asked_about_once(root: Path, encoder: Path, corpus: str) -> None:
    every = run_all(root, corpus, brief(encoder))
    rows = [row for fold in every for row in pq.read_table(str(place_of(Store(root), fold))).to_pylist()]
    ids = [row["record_id"] for row in sql(root, f"FROM records WHERE corpus = '{corpus}'", [corpus]).to_pylist()]
    if corpus == "reviews":
        assert sorted({row["record_id"] for row in rows}) == sorted(ids) and len(rows) == 3 * len(ids)
    made = suspects(corpus, root=root, recipe=brief(encoder), folds=2)  # starts no Ray
    [known] = sql(root, f"SELECT count(*) AS n FROM suspects WHERE corpus = '{corpus}'").to_pylist()
    assert known["n"] == made.counts["annotations"] and made.parameters["source"] == "2 folds"
    assert suspects(corpus, root=root, recipe=brief(encoder), folds=2) == made


def test_a_fold_that_lacks_records_predicts_nothing(tmp_path: Path, encoder: Path) -> None:
    put_corpus(tmp_path, "reviews", REVIEWS[:1])
    for fold in run_all(tmp_path, "reviews", brief(encoder)):
        assert pq.read_table(str(place_of(Store(tmp_path), fold))).num_rows == 0


def test_records_of_one_text_share_a_fold() -> None:
    one = REVIEWS[3]
    again = replace(one, record_id="other/train/9", text=one.text.upper())
    assert fold_of(one, 5) == fold_of(again, 5) and {fold_of(each, 5) for each in REVIEWS} == set(range(5))


def test_folds_start_from_the_model_of_the_package_unless_it_has_seen_the_corpus(root: Path) -> None:
    manifest = Store(root).current("corpora", "reviews")[1]
    known = [
        manifest.model_copy(update={"name": "sst"}),
        manifest.model_copy(update={"dataset": "sst"}),
        manifest.model_copy(update={"twins": ["sst"]}),
    ]
    stranger = manifest.model_copy(update={"name": "ss"})
    assert {default_recipe(one).ancestor for one in (manifest, stranger)} == {"universal-small"}
    assert [default_recipe(one).ancestor for one in known] == [None, None, None]
    [first, second] = [folds_of(manifest, recipe, 2)[0] for recipe in (default_recipe(manifest), DEFAULT)]
    assert first.key != second.key
    every = folds_of(manifest, DEFAULT, 3)
    assert [fold.number for fold in every] == [0, 1, 2] and len({fold.key for fold in every}) == 3
    with pytest.raises(UserError, match=r"universal-small was trained on sst, sst_fine.* leave out `from`"):
        folds_of(known[0], default_recipe(manifest), 2)
    with pytest.raises(UserError, match=r"a model that comes with ubert \(universal-small,"):
        folds_of(manifest, starting_from("my-run"), 2)


@pytest.mark.parametrize("of_hub", [False, True])
@pytest.mark.parametrize(
    "files", [("model.safetensors",), ("model-1-of-2.safetensors", "model-2-of-2.safetensors")]
)
def test_folds_of_other_weights_of_an_encoder_are_others(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_hub: bool, files: Sequence[str]
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--org--encoder"
    folder = repository / "snapshots/0123" if of_hub else tmp_path / "encoder"
    folder.mkdir(parents=True)
    (repository / "refs").mkdir(parents=True)
    (repository / "refs/main").write_text("0123")
    (folder / "config.json").write_text("{}")
    manifest, keys = Store(root).current("corpora", "reviews")[1], set()
    for content in ("a", "b"):
        for file in files:
            (folder / file).write_text(content if file == files[-1] else "")
        recipe = DEFAULT.model_copy(update={"encoder": "org/encoder" if of_hub else str(folder)})
        keys.add(folds_of(manifest, recipe, 2)[0].key)
    assert len(keys) == 2


def test_predictions_that_the_store_refuses_give_one_clear_error(
    remote: ObjectPath, object_store: ObjectStore
) -> None:
    put_corpus(remote, "people", [ner(0), ner(1)])
    store = Store(remote)
    for fold in folds_of(store.current("corpora", "people")[1], DEFAULT, 2):
        object_store.put(str(place_of(store, fold)).removeprefix(SCHEME), bytes(1000))
    refused = object_store.failing(lambda method, path: "403" if method == "GET" and "/folds/" in path else None)
    with refused, pytest.raises(UserError, match=r"suspects-people/.*: the store fails: .*ACCESS_DENIED"):
        suspects("people", root=remote, recipe=DEFAULT, folds=2)


def put_passes(root: Path, run: str, believed: Mapping[str, float | Sequence[float]], **same: Any) -> None:
    """The parts of a run, which believed the annotation of a record so much in each epoch."""
    rows = [
        {
            "record_id": record_id,
            "row": i,
            "epoch": epoch,
            "step": 1 + epoch,
            "loss": 1 - sure,
            "confidence": sure,
            "margin": sure - 0.5,
            "predicted": 0,
        }
        for i, (record_id, of_record) in enumerate(believed.items())
        for epoch, sure in enumerate(of_record if isinstance(of_record, Sequence) else [of_record])
    ]
    folder = root / "runs" / run / "dynamics"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([row | same for row in rows], SCHEMA), folder / "00000001-0.parquet")
    store = Store(root)
    corpora = {record_id.split("/")[0] for record_id in believed} & set(store.names("corpora"))
    if corpora:
        sources = [{"corpus": corpus} for corpus in sorted(corpora)]
        put_state(store, run, mix(Mixture.model_validate({"name": run, "sources": sources}), root=root))


def put_state(store: Store, run: str, drawn: MixtureManifest) -> None:
    """The checkpoint of a run that was trained on a mixture, as far as it names its shards."""
    nothing = ShardFile(path="none", rows=0, tokens=0, blake3="00")
    shards = ShardManifest(
        name=run,
        fingerprint=fingerprint(drawn.fingerprint),
        created=now(),
        mixture=drawn.name,
        mixture_fingerprint=drawn.fingerprint,
        encoder="none",
        tokenizer="none",
        max_tokens=8,
        phases=1,
        shards=[],
        **dict.fromkeys(("draws", "categories", "prompts"), nothing),
        cut_categories=0,
        alignment=[],
    )
    store.publish("shards", shards)
    state = store.root / "runs" / run / "checkpoints" / "step-000001" / "state.json"
    write_json(state, {"shards": shards.fingerprint})


@pytest.fixture
def known(tmp_path: Path) -> Path:
    """A corpus whose suspects are known, from one run."""
    put_corpus(tmp_path, "reviews", list(map(flipped, REVIEWS)))
    put_passes(tmp_path, "one", {one.record_id: 0.1 if one.record_id in WRONG else 0.9 for one in REVIEWS})
    suspects("reviews", root=tmp_path, run="one")
    return tmp_path


def test_one_run_says_what_it_did_not_believe(known: Path) -> None:
    rows = sql(known, "SELECT record_id, predicted, flagged, source FROM suspects").to_pylist()
    assert {row["record_id"] for row in rows} == WRONG
    assert all(
        (row["predicted"], row["flagged"], row["source"]) == ("opinion number 0", True, "run one") for row in rows
    )


def test_what_was_believed_in_some_passes_is_no_suspect_to_drop(tmp_path: Path) -> None:
    put_corpus(tmp_path, "reviews", REVIEWS[:4])
    believed = {"reviews/train/0": (0.75, 0.75), "reviews/train/1": (0.25, 0.75), "reviews/train/2": (0.125, 0.25)}
    put_passes(tmp_path, "two", {**believed, "elsewhere/train/1": (0.0, 0.0)})
    assert suspects("reviews", root=tmp_path, run="two").counts == {"annotations": 2, "records": 2, "flagged": 1}
    names = "record_id, kind, said, predicted, confidence, score, flagged"
    rows = sql(tmp_path, f"SELECT {names} FROM suspects ORDER BY rank").to_pylist()
    first, kind = "opinion number 0", "wrong label"
    assert [tuple(row.values()) for row in rows] == [
        ("reviews/train/2", kind, "opinion number 2", first, 0.8125, 0.8125, True),
        ("reviews/train/1", kind, "opinion number 1", first, 0.5, 0.5, False),
    ]


def test_a_label_that_a_run_mostly_predicted_is_no_suspect(tmp_path: Path) -> None:
    put_corpus(tmp_path, "reviews", REVIEWS[:4])
    put_passes(tmp_path, "one", {"reviews/train/0": (0.25, 0.75), "reviews/train/1": (0.25, 0.75)})
    suspects("reviews", root=tmp_path, run="one")
    assert sql(tmp_path, "SELECT record_id FROM suspects").to_pylist() == [{"record_id": "reviews/train/1"}]


def test_one_right_label_of_several_is_not_given_as_what_a_run_predicts_instead(tmp_path: Path) -> None:
    several = [
        replace(one, task="multilabel", labels=labels)
        for one, labels in zip(REVIEWS, ([0, 1], [1, 2]), strict=False)
    ]
    put_corpus(tmp_path, "reviews", several)
    put_passes(tmp_path, "one", {"reviews/train/0": 0.25, "reviews/train/1": 0.125})
    suspects("reviews", root=tmp_path, run="one")
    rows = sql(tmp_path, "SELECT predicted, flagged FROM suspects ORDER BY rank").to_pylist()
    assert [tuple(row.values()) for row in rows] == [("opinion number 0", True), (None, True)]


def test_mentions_with_the_highest_loss_for_each_come_first(tmp_path: Path) -> None:
    """A run has only the losses of texts with mentions."""
    put_corpus(tmp_path, "people", [ner(0), ner(1), replace(ner(2), spans=[])])
    losses = {"people/train/0": -2.0, "people/train/1": 0.625, "people/train/2": -1.0}  # 3, 0.375 and 2
    put_passes(tmp_path, "one", losses, confidence=None, margin=None, predicted=None)
    assert suspects("people", root=tmp_path, run="one").counts == {"annotations": 3, "records": 3, "flagged": 0}
    rows = sql(tmp_path, "SELECT record_id, said, predicted, score FROM suspects ORDER BY rank").to_pylist()
    assert [(row["record_id"], row["said"], row["predicted"]) for row in rows] == [
        ("people/train/2", None, None),
        ("people/train/0", "Ada Lovelace [person]; Zürich [place]", None),
        ("people/train/1", "Niels Bohr [person]; Paris [place]", None),
    ]
    assert [row["score"] for row in rows] == pytest.approx([1, 2 / 3, 1 / 3])


def test_a_run_of_another_version_of_the_corpus_is_refused(known: Path) -> None:
    """Records of both versions have the same names, and their labels may have been corrected."""
    put_corpus(known, "reviews", REVIEWS[:50])
    with pytest.raises(UserError, match=r"run one: it was trained on version .* train again under another name"):
        suspects("reviews", root=known, run="one")
    for mixture in (known / "mixtures").glob("*/*/manifest.json"):
        mixture.unlink()
    with pytest.raises(UserError, match="run one: the store no longer has the mixture or the shards"):
        suspects("reviews", root=known, run="one")


def test_a_run_that_went_on_is_looked_at_again(known: Path) -> None:
    """What was found before counts again once the run is as it was."""
    for some, count in ((REVIEWS, 3), (REVIEWS[:41], 2), (REVIEWS, 3)):
        put_passes(known, "one", {one.record_id: 0.1 if one.record_id in WRONG else 0.9 for one in some})
        assert suspects("reviews", root=known, run="one").counts["annotations"] == count
        assert len(sql(known, "SELECT record_id FROM suspects")) == count


def test_a_mixture_drops_suspects_and_counts_them(known: Path) -> None:
    wanted: dict[str, Any] = {"name": "shop", "sources": [{"corpus": "reviews"}], "leaks": "allow"}
    kept = mix(Mixture(**wanted), root=known)
    manifest = mix(Mixture(**wanted, suspects="drop"), root=known)
    assert (kept.sources[0].draws, manifest.sources[0].draws) == (100, 97)
    assert manifest.sources[0].dropped_suspects == manifest.dropped == 3
    assert composition(manifest).column("suspects").to_pylist() == [3, 3]
    rows = sql(known, "SELECT record_id, reason, kind FROM dropped").to_pylist()
    assert {row["record_id"] for row in rows} == WRONG
    assert {(row["reason"], row["kind"]) for row in rows} == {("suspect", "wrong label")}


def test_suspects_are_dropped_beside_what_is_replayed(known: Path) -> None:
    put_corpus(
        known, "meetings", [record("meetings", i, "event", f"They met on day {i}", ["meeting"]) for i in range(9)]
    )
    mixtures = known / "specs" / "mixtures"
    mixtures.mkdir(parents=True)
    for name, corpus, more in (
        ("shop", "reviews", {"suspects": "drop", "leaks": "allow"}),
        ("base", "meetings", {}),
    ):
        content = {"name": name, "sources": [{"corpus": corpus}], **more}
        (mixtures / f"{name}.yaml").write_text(json.dumps(content), encoding="utf-8")
    recipe = Recipe(name="r", mixture="shop", steps=1, replay=Replay(mixture="base", share=0.05))
    reviews, _ = mix(trained_on(recipe, root=known, specs=known / "specs"), root=known).sources
    assert (reviews.dropped_suspects, reviews.records) == (3, 97)


def test_a_mixture_draws_a_share_of_the_suspects(known: Path) -> None:
    def kept(seed: int) -> set[str]:
        wanted: dict[str, Any] = {"name": "shop", "sources": [{"corpus": "reviews"}], "leaks": "allow"}
        manifest = mix(Mixture(**wanted, suspects=0.5, seed=seed), root=known)
        dropped = {row["record_id"] for row in sql(known, "SELECT record_id FROM dropped").to_pylist()}
        assert manifest.sources[0].draws == 100 - len(dropped) and dropped <= WRONG
        return WRONG - dropped

    of_seeds = [kept(seed) for seed in range(4)]
    assert of_seeds == [kept(seed) for seed in range(4)]
    assert 0 < sum(map(len, of_seeds)) < 4 * len(WRONG) and len(set(map(frozenset, of_seeds))) > 1


def test_a_larger_share_draws_more_of_the_suspects(known: Path) -> None:
    def draws(share: float) -> int:
        wanted: dict[str, Any] = {"name": "shop", "sources": [{"corpus": "reviews"}], "leaks": "allow"}
        return mix(Mixture(**wanted, suspects=share), root=known).sources[0].draws

    assert (draws(0.01), draws(0.99)) == (97, 100)


def test_only_flagged_suspects_are_dropped_each_once_as_what_is_likeliest_wrong(known: Path) -> None:
    path = Store(known).current("audits", "suspects-reviews")[0] / "suspects.parquet"
    table = pq.read_table(str(path))
    [doubtful, twice, other] = table.to_pylist()
    rows = [
        {**doubtful, "flagged": False},
        {**twice, "kind": "a kind", "score": 0.1},
        {**twice, "kind": "the kind", "score": 0.9},
        {**twice, "kind": "another kind", "score": 0.5},
        other,
    ]
    pq.write_table(pa.Table.from_pylist(rows, table.schema), str(path))
    wanted: dict[str, Any] = {"name": "shop", "sources": [{"corpus": "reviews"}], "leaks": "allow"}
    [source] = mix(Mixture(**wanted, suspects="drop"), root=known).sources
    assert (source.dropped_suspects, source.draws) == (2, 98)
    dropped = {row["record_id"]: row["kind"] for row in sql(known, "FROM dropped").to_pylist()}
    assert dropped == {twice["record_id"]: "the kind", other["record_id"]: other["kind"]}


def test_a_copy_of_a_suspect_is_drawn_in_its_place(tmp_path: Path) -> None:
    """Without `suspects` the first of the two is drawn."""
    records = [*map(flipped, REVIEWS), replace(REVIEWS[7], record_id="reviews/train/907")]
    put_corpus(tmp_path, "reviews", records)
    put_passes(tmp_path, "one", {one.record_id: 0.1 if one.record_id in WRONG else 0.9 for one in records})
    suspects("reviews", root=tmp_path, run="one")
    wanted: dict[str, Any] = {"name": "shop", "sources": [{"corpus": "reviews"}], "leaks": "allow"}
    cases: list[tuple[dict[str, Any], list[int]]] = [({}, [0, 1, 100]), ({"suspects": "drop"}, [3, 0, 98])]
    for more, expected in cases:
        [source] = mix(Mixture(**wanted, **more), root=tmp_path).sources
        assert [source.dropped_suspects, source.dropped_duplicates, source.draws] == expected


def test_suspects_must_be_known_of_each_corpus_that_can_have_any(known: Path) -> None:
    scores = [replace(sentiment(i, corpus="scores"), task="regression") for i in range(20)]
    put_corpus(known, "scores", scores)
    put_corpus(known, "people", [ner(i) for i in range(20)])
    put_corpus(known, "tested", [replace(sentiment(i, corpus="tested"), split="test") for i in range(20)])

    def wanted(*sources: dict[str, str]) -> Mixture:
        content = {"name": "shop", "sources": sources, "leaks": "allow", "suspects": "drop"}
        return Mixture.model_validate(content)

    drawn = mix(wanted({"corpus": "reviews"}, {"corpus": "scores"}), root=known).sources
    assert [(source.dropped_suspects, source.draws) for source in drawn] == [(3, 97), (0, 20)]
    with pytest.raises(UserError, match="has not run for the current version of people"):
        mix(wanted({"corpus": "reviews"}, {"corpus": "people"}), root=known)
    with pytest.raises(UserError, match="no source is one"):
        mix(wanted({"corpus": "tested", "split": "test"}), root=known)


def test_the_word_leaves_other_mixtures_as_they_were() -> None:
    wanted = Mixture(name="shop", sources=[{"corpus": "reviews"}])  # type: ignore[list-item]
    assert "suspects" not in wanted.meaning
    assert fingerprint(wanted.meaning) != fingerprint(wanted.model_copy(update={"suspects": "drop"}).meaning)


def test_a_mixture_refuses_suspects_of_another_state(known: Path) -> None:
    put_corpus(known, "reviews", REVIEWS[:50])
    wanted = Mixture(name="shop", sources=[{"corpus": "reviews"}], suspects="drop")  # type: ignore[list-item]
    with pytest.raises(UserError, match="run `ubert suspects reviews`, or set `suspects: keep`"):
        mix(wanted, root=known)


def test_a_mixture_refuses_to_drop_suspects_where_none_can_be(known: Path) -> None:
    put_corpus(known, "scores", [replace(one, task="regression") for one in REVIEWS])
    wanted = Mixture(name="shop", sources=[{"corpus": "scores"}], suspects="drop")  # type: ignore[list-item]
    with pytest.raises(UserError, match=r"mixture shop: suspects: drop: .* no source is one; remove `suspects`"):
        mix(wanted, root=known)


def test_the_report_shows_what_both_say(known: Path) -> None:
    page = html(known)
    assert "reviews: 3 annotations, 3 flagged" in page and "opinion number 2" in page


def test_what_cannot_have_suspects_is_refused(known: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_corpus(known, "tested", [replace(one, split="test") for one in REVIEWS])
    put_corpus(known, "scores", [replace(one, task="regression") for one in REVIEWS])
    with pytest.raises(UserError, match="corpus tested has no training split"):
        suspects("tested", root=known)
    with pytest.raises(UserError, match="corpus scores: a model can contradict labels"):
        suspects("scores", root=known)
    with pytest.raises(UserError, match=r"run two: no dynamics in .*train it with `dynamics: true`"):
        suspects("reviews", root=known, run="two")
    put_passes(known, "three", {"elsewhere/train/1": 0.5})
    with pytest.raises(UserError, match="run three: its dynamics have no record of corpus reviews"):
        suspects("reviews", root=known, run="three")
    put_corpus(known, "refused", [replace(one, split="test") for one in REVIEWS], [("train", "bad row")])
    with pytest.raises(UserError, match="corpus refused has no training split"):
        suspects("refused", root=known)
    others: list[dict[str, Any]] = [{"objectives": {"spexbert": 1.0}}, {"continue_from": "run/step-000001"}]
    for other in others:
        with pytest.raises(UserError, match="folds are trained on structure tables"):
            suspects("reviews", root=known, recipe=brief(encoder).model_copy(update=other))
    with pytest.raises(UserError, match="corpus reviews has 100 training records, too few for 101 folds"):
        suspects("reviews", root=known, recipe=brief(encoder), folds=101)
    monkeypatch.setattr(labels, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="need the package cleanlab; run pip install 'ubert\\[suspects\\]'"):
        suspects("reviews", root=known)


def test_the_command_prints_the_worst(known: Path) -> None:
    found = CliRunner().invoke(app, ["suspects", "reviews", "--run", "one", "--root", str(known)])
    assert found.exit_code == 0 and "reviews: 3 suspects, of which 3 are flagged (run one)" in found.output
