"""The invented world: spans are exact, splits share nothing, and records do not depend on its size."""

from __future__ import annotations

import csv
import filecmp
import json
import re
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.mapping.mapper import mapper
from pipelines.samples import entities, questions
from pipelines.samples.generate import DATASETS, generate, generate_files, split_sizes, stream_of
from pipelines.samples.grammar import compile_rules, deal, read
from pipelines.samples.scene import Scene
from pipelines.samples.world import makers
from pipelines.sources import RawRow, Slice, reader
from pipelines.specs import dataset_spec, file_options, mixture, recipe
from ubert.schema.errors import UserError
from ubert.schema.record import SPLITS, Record, Split

SPECS = Path(__file__).parents[2] / "corpus_specs"
COMMITTED = 30  # records of each dataset under corpus_specs/samples, with seed 0
SPEC_NAMES = sorted(path.stem for path in (SPECS / "datasets").glob("sample_*.yaml"))

seeds = st.integers(0, 2**40)
splits = st.sampled_from(SPLITS)


def some(name: str, split: Split, n: int, seed: int = 0) -> list[Any]:
    return list(islice(stream_of(name, split, seed), n))


def text_of(name: str, record: Any) -> str:
    """The words of a record, without its id and labels."""
    if name == "sample_reviews":
        return str(record["text"])
    if name == "sample_entities":
        return " ".join(token for token, _ in record)
    if name == "sample_deals":
        return str(record.text)
    if name == "sample_questions":
        return str(record["context"])
    return "\t".join(record[1:-1])


def tagged_names(record: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """(words, label) of each span of a BIO-tagged text."""
    found: list[tuple[str, str]] = []
    for token, tag in record:
        mark, _, label = tag.partition("-")
        if mark == "B":
            found.append((token, label))
        elif mark == "I":
            words, open_label = found.pop()
            assert open_label == label
            found.append((f"{words} {token}", label))
    return found


@settings(max_examples=60, deadline=None)
@given(seeds, splits)
def test_standoff_offsets_give_the_mention_and_links_have_ends(seed: int, split: Split) -> None:
    for document in some("sample_deals", split, 3, seed):
        lines = [line.split("\t") for line in document.annotations.splitlines()]
        ids = {line[0] for line in lines}
        assert len(ids) == len(lines)
        for line in lines:
            if line[0][0] == "T":
                _, start, end = line[1].split(" ")
                assert document.text[int(start) : int(end)] == line[2] != ""
            else:
                assert all(argument.split(":")[1] in ids for argument in line[1].split(" ") if ":" in argument)


@settings(max_examples=60, deadline=None)
@given(seeds, splits)
def test_answers_lie_at_their_offsets(seed: int, split: Split) -> None:
    for paragraph in some("sample_questions", split, 3, seed):
        context = paragraph["context"]
        assert len({question["question"] for question in paragraph["qas"]}) == questions.QUESTIONS
        for question in paragraph["qas"]:
            assert question["is_impossible"] == (not question["answers"])
            for answer in question["answers"] + question.get("plausible_answers", []):
                start = answer["answer_start"]
                assert context[start : start + len(answer["text"])] == answer["text"] != ""


@settings(max_examples=60, deadline=None)
@given(seeds, splits)
def test_tagged_tokens_are_the_text_and_its_names(seed: int, split: Split) -> None:
    grammar = compile_rules(read("entities"), makers(split), split)
    scene = Scene(seed, "any", split, 0)
    scene.pick(grammar["item"])(scene)
    text = scene.take()
    record = entities.tagged(text)
    assert "".join(token for token, _ in record) == re.sub(r"\s", "", text.text)
    kinds = entities.LABELS
    named = [(text.text[m.start : m.end], kinds[m.slot[:-1]]) for m in text.marks if m.slot[:-1] in kinds]
    found = tagged_names(record)
    assert [label for _, label in found] == [label for _, label in named]
    for (tokens, _), (words, _) in zip(found, named, strict=True):
        assert tokens.replace(" ", "") == words.replace(" ", "")


@settings(max_examples=20, deadline=None)
@given(seeds, splits, st.sampled_from(sorted(DATASETS)))
def test_texts_are_well_formed(seed: int, split: Split, name: str) -> None:
    for record in some(name, split, 3, seed):
        text = text_of(name, record)
        assert not re.search(r"[{}<>|]|\ba [aeio]\w|  |\.\.", text), text
        if name != "sample_entities":
            for part in text.strip().split("\t"):
                assert re.match(r'"?[A-Z0-9$€£]', part) and re.search(r'[.!?]"?$', part), text
                assert not re.search(r'[.!?]"? [a-z]', part), text


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_splits_share_no_text(name: str) -> None:
    texts = {split: {text_of(name, record) for record in some(name, split, 1000)} for split in SPLITS}
    assert not texts["train"] & texts["test"]
    assert not texts["train"] & texts["validation"]
    assert not texts["validation"] & texts["test"]


def test_splits_share_no_name() -> None:
    found: dict[Split, set[str]] = {}
    for split in SPLITS:
        names = [
            words
            for record in some("sample_entities", split, 3000)
            for words, label in tagged_names(record)
            if label in ("PER", "ORG", "LOC", "PROD")
        ]
        lines = [line for d in some("sample_deals", split, 1500) for line in d.annotations.splitlines()]
        named = ("Person", "Organization", "Place")
        names += [line.split("\t")[2] for line in lines if line.split("\t")[1].startswith(named)]
        found[split] = set(names)
        assert len(found[split]) > 1000
    assert not found["train"] & found["test"]
    assert not found["train"] & found["validation"]
    assert not found["validation"] & found["test"]


def test_no_template_is_dealt_to_two_splits() -> None:
    rules: list[list[str]] = []
    for name in ("reviews", "topics"):
        topics: dict[str, dict[str, Any]] = read(name)
        rules += [v.splitlines() for topic in topics.values() for k, v in topic.items() if k[0].isupper()]
    for name in ("entities", "deals"):
        flat: dict[str, str] = read(name)
        rules += [v.splitlines() for k, v in flat.items() if k[0].isupper()]
    subjects: dict[str, Any] = read("questions")
    subjects.pop("words")
    facts = [fact for subject in subjects.values() for fact in subject.values()]
    rules += [lines.splitlines() for fact in facts for lines in (fact["tell"], *fact["ask"].values())]
    situations: list[dict[str, str]] = read("entailment")
    rules.append([situation["premise"] for situation in situations])
    for lines in rules:
        assert len(set(lines)) == len(lines)
        dealt = [deal(lines, split) for split in SPLITS]
        assert all(dealt), lines
        assert sorted(line for part in dealt for line in part) == sorted(lines)
    assert sum(map(len, rules)) > 600


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_texts_are_many(name: str) -> None:
    texts = [text_of(name, record) for record in some(name, "train", 3000)]
    assert len(set(texts)) > 0.96 * len(texts)


@pytest.mark.parametrize("name", ["sample_reviews", "sample_topics", "sample_entailment"])
def test_labels_are_balanced(name: str) -> None:
    counts = Counter(r["label"] if isinstance(r, dict) else r[-1] for r in some(name, "train", 2400))
    assert all(0.8 < count * len(counts) / 2400 < 1.2 for count in counts.values())


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The world with 53 and with 503 records."""
    made = {}
    for records in (53, 503):
        made[records] = tmp_path_factory.mktemp("world")
        counts = generate(records, 7, made[records])
        by_dataset = Counter({name: 0 for name in DATASETS})
        for file, count in counts.items():
            by_dataset[file.split("/")[0]] += count
        assert by_dataset == dict.fromkeys(DATASETS, records)
    return made


def parsed(folder: Path, split: Split) -> dict[str, list[Any]]:
    """Every dataset's records, read by minimal parsers of our own."""
    found: dict[str, list[Any]] = {}
    with (folder / f"sample_reviews/{split}-000.jsonl").open(encoding="utf-8") as file:
        found["sample_reviews"] = [json.loads(line) for line in file]
    with (folder / f"sample_topics/{split}-000.csv").open(encoding="utf-8", newline="") as file:
        found["sample_topics"] = list(csv.DictReader(file))
    with (folder / f"sample_entailment/{split}-000.tsv").open(encoding="utf-8", newline="") as file:
        found["sample_entailment"] = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    blocks = (folder / f"sample_entities/{split}-000.conll").read_text(encoding="utf-8").strip().split("\n\n")
    found["sample_entities"] = [[tuple(line.split("\t")) for line in block.split("\n")] for block in blocks]
    texts = sorted((folder / f"sample_deals/{split}").rglob("*.txt"))
    found["sample_deals"] = [
        (path.read_text(encoding="utf-8"), path.with_suffix(".ann").read_text(encoding="utf-8")) for path in texts
    ]
    data = json.loads((folder / f"sample_questions/{split}-000.json").read_text(encoding="utf-8"))["data"]
    found["sample_questions"] = [
        (paragraph["context"], question)
        for article in data
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    return found


@pytest.mark.parametrize("split", SPLITS)
def test_files_hold_what_was_written(world: dict[int, Path], split: Split) -> None:
    found = parsed(world[53], split)
    size = split_sizes(53)[split]
    assert {name: len(records) for name, records in found.items()} == dict.fromkeys(DATASETS, size)
    assert found["sample_reviews"] == some("sample_reviews", split, size, 7)
    assert [tuple(row.values()) for row in found["sample_topics"]] == some("sample_topics", split, size, 7)
    assert [tuple(row.values()) for row in found["sample_entailment"]] == some("sample_entailment", split, size, 7)
    assert found["sample_entities"] == some("sample_entities", split, size, 7)
    assert found["sample_deals"] == some("sample_deals", split, size, 7)
    paragraphs = some("sample_questions", split, size, 7)
    asked = [(paragraph["context"], question) for paragraph in paragraphs for question in paragraph["qas"]]
    assert found["sample_questions"] == asked[:size]


@pytest.mark.parametrize("split", SPLITS)
def test_a_record_is_the_same_whatever_the_size(world: dict[int, Path], split: Split) -> None:
    few, many = parsed(world[53], split), parsed(world[503], split)
    for name in DATASETS:
        assert few[name] == many[name][: len(few[name])]


def test_seeds_differ() -> None:
    for name in DATASETS:
        assert some(name, "train", 5, seed=1) != some(name, "train", 5, seed=2)


def test_committed_samples_are_what_the_generator_writes(tmp_path: Path) -> None:
    generate(COMMITTED, 0, tmp_path, with_useless=True)

    def same(folder: Path) -> None:
        compared = filecmp.dircmp(tmp_path / folder, SPECS / "samples" / folder, ignore=[])
        assert not compared.left_only and not compared.right_only
        _, wrong, errors = filecmp.cmpfiles(compared.left, compared.right, compared.common_files, shallow=False)
        assert not wrong and not errors, f"run `ubert samples --records {COMMITTED} --seed 0 --useless` anew"
        for inner in compared.common_dirs:
            same(folder / inner)

    same(Path())


@pytest.mark.parametrize("name", SPEC_NAMES)
def test_every_committed_sample_becomes_a_record(name: str) -> None:
    spec = dataset_spec(name, SPECS)
    folder = SPECS / "samples" / spec.folder
    records: list[Record] = []
    for files in spec.files:
        options = file_options(spec, files)
        for path in sorted(folder.glob(files.path)):
            piece = Slice(str(folder), path.relative_to(folder).as_posix(), 0, path.stat().st_size, 1, "utf-8", "")
            to_record = mapper(spec, files.split)
            for row in reader(spec.format).read(piece, options):
                assert isinstance(row, RawRow), row
                record = to_record(piece, row)
                assert isinstance(record, Record), record
                records.append(record)
    assert len(records) == COMMITTED
    assert len({record.record_id for record in records}) == COMMITTED
    if spec.task in ("ner", "relation", "event"):
        assert any(record.spans for record in records)
    if spec.task == "relation":
        assert sum(len(record.relations) for record in records) >= COMMITTED
    if spec.task == "event":
        assert all(record.events and record.events[0].arguments for record in records)


def test_quickstart_trains_on_datasets_that_exist() -> None:
    quickstart = recipe("quickstart", SPECS)
    sources = {source.corpus for source in mixture(quickstart.mixture, SPECS).sources}
    assert sources | {evaluation.corpus for evaluation in quickstart.evaluate} <= set(SPEC_NAMES)


def test_a_run_cut_short_leaves_no_half_written_dataset_and_the_next_one_completes(tmp_path: Path) -> None:
    running = generate_files(30, 0, tmp_path)
    for file, _ in running:
        if file.startswith("sample_topics/"):
            break
    running.close()
    assert [path.name for path in tmp_path.glob("[!.]*")] == ["sample_reviews"]
    for path in (tmp_path / "sample_reviews").iterdir():
        path.unlink()
    (tmp_path / "sample_reviews").rmdir()
    generate(30, 0, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(DATASETS)


@pytest.mark.parametrize("records", [-1, 0, 2])
def test_too_few_records(tmp_path: Path, records: int) -> None:
    with pytest.raises(UserError, match="at least 3"):
        generate(records, 0, tmp_path)


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    generate(3, 0, tmp_path)
    with pytest.raises(UserError, match="already exists"):
        generate(3, 0, tmp_path)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write samples to"):
        generate(3, 0, tmp_path / "file")


def write(template: str, **rules: Any) -> str:
    grammar = compile_rules({"item": template, **rules}, makers("train"), "train")
    scene = Scene(0, "any", "train", 0)
    grammar["item"][0](scene)
    return scene.take().text


def test_articles_and_capitals() -> None:
    word = "hour|unit|apple|plum|8 o'clock|one-off"
    got = [write("{^a thing} and {a thing}.", thing=w) for w in word.split("|")]
    assert got == [
        "An hour and an hour.",
        "A unit and a unit.",
        "An apple and an apple.",
        "A plum and a plum.",
        "An 8 o'clock and an 8 o'clock.",
        "A one-off and a one-off.",
    ]


def test_numbered_references_repeat_and_differ() -> None:
    words = write("{letter1}{letter1}{letter2}{letter2}{letter3}", letter="a\nb\nc")
    assert words[0] == words[1] and words[2] == words[3] and len(set(words)) == 3
    one, again, other = write("{person1}/{person1}/{person2}").split("/")
    assert one == again and set(one.split()).isdisjoint(other.split())


@pytest.mark.parametrize("template", ["(a|b", "a)", "<a", "{no such rule}", "{missing}", "{aspect.none}"])
def test_wrong_templates(template: str) -> None:
    with pytest.raises(ValueError, match=r"template|reference|not defined"):
        write(template)


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same world with planted errors, and without."""
    noisy, clean = tmp_path_factory.mktemp("noisy"), tmp_path_factory.mktemp("clean")
    generate(250, 3, noisy, noise=0.1, with_useless=True)
    generate(250, 3, clean)
    return noisy, clean


def truth_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "truth.jsonl").read_text(encoding="utf-8").splitlines()]


def test_a_planted_label_is_wrong_and_the_rest_is_as_it_was(noisy: tuple[Path, Path]) -> None:
    changed, clean = (
        [json.loads(line) for line in (root / "sample_reviews/train-000.jsonl").open(encoding="utf-8")]
        for root in noisy
    )
    truth = {row["number"]: row for row in truth_of(noisy[0] / "sample_reviews")}
    assert 5 <= len(truth) <= 40
    for number, (now, before) in enumerate(zip(changed, clean, strict=True)):
        label = truth[number]["said"] if number in truth else before["label"]
        assert now == {**before, "label": label}
        if number in truth:
            assert truth[number]["true"] == before["label"] != label and truth[number]["text"] == before["text"]


def test_a_planted_mention_is_missed_or_a_token_off(noisy: tuple[Path, Path]) -> None:
    changed, clean = (
        [
            [tuple(line.split("\t")) for line in text.splitlines()]
            for text in (root / "sample_entities/train-000.conll").read_text(encoding="utf-8").split("\n\n")
        ]
        for root in noisy
    )
    truth = {row["number"]: row for row in truth_of(noisy[0] / "sample_entities")}
    assert {row["kind"] for row in truth.values()} == {"missed", "shifted"}
    for number, (now, before) in enumerate(zip(changed, clean, strict=True)):
        assert [token for token, _ in now] == [token for token, _ in before] if now != [()] else True
        differing = sum(one != other for one, other in zip(now, before, strict=True))
        assert (differing > 0) == (number in truth)
        if number in truth and truth[number]["kind"] == "shifted":
            assert differing == 1


def test_evaluation_splits_and_other_datasets_have_no_errors(noisy: tuple[Path, Path]) -> None:
    for name in DATASETS:
        for path in (noisy[1] / name).rglob("*.*"):
            relative = path.relative_to(noisy[1])
            if not path.name.startswith("train") or name in ("sample_deals", "sample_questions"):
                assert (noisy[0] / relative).read_bytes() == path.read_bytes(), relative


def test_the_useless_labels_are_drawn_by_lot(noisy: tuple[Path, Path]) -> None:
    rows = (noisy[0] / "sample_useless/train-000.csv").read_text(encoding="utf-8").splitlines()
    colours = Counter(row.rsplit(",", 1)[1] for row in rows[1:])
    assert set(colours) == {"amber", "cobalt", "ochre", "teal"} and min(colours.values()) > 20
    assert not (noisy[1] / "sample_useless").exists()
