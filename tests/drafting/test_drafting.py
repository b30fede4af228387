"""Specs drafted from unusual files: each loads, and makes the right records."""

from __future__ import annotations

import gzip
import json
import random
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Sequence, Value
from drafts import NOUNS, PEOPLE, PLACES, mirror, put, records, sentence, spec_of
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner
from waiting import HANGS

from pipelines.cli.commands import app
from pipelines.drafting import sample
from pipelines.drafting.check import differences
from pipelines.drafting.draft import draft
from pipelines.drafting.hub import drafted
from pipelines.drafting.names import is_code, plain_name, plain_names
from pipelines.drafting.preview import preview
from pipelines.drafting.write import text_of
from pipelines.ingest.source_files import source_folder
from pipelines.sources import content_hash
from pipelines.specs import dataset_spec
from ubert.schema.checks import covered
from ubert.schema.errors import UserError
from ubert.schema.record import Record


def reviews(tmp_path: Path) -> list[Path]:
    """Semicolons, quotes with line ends in them, Latin-1, and a column of ids."""
    rng = random.Random(1)
    paths = []
    for split, count in (("training", 60), ("dev", 20)):
        rows = ["ReviewNo;Überschrift;Body;Star_Rating"]
        for n in range(count):
            star = rng.choice(["ONE_STAR", "FIVE_STARS"])
            rows.append(f'{n};Zu {rng.choice(NOUNS)};"{sentence(rng)};\n""quoted"" größer";{star}')
        paths.append(put(mirror(tmp_path), f"reviews_{split}.csv", "\n".join(rows).encode("latin-1")))
    return paths


def test_csv_with_semicolons_line_ends_in_quotes_and_latin_1(tmp_path: Path) -> None:
    paths = reviews(tmp_path)
    spec = spec_of(tmp_path, *paths)
    assert (spec.format, spec.task) == ("table", "classification")
    assert spec.options == {"separator": ";", "quoting": "csv", "header": True}
    assert [(entry.split, entry.path, entry.encoding) for entry in spec.files] == [
        ("train", "reviews_training.csv", "latin-1"),
        ("validation", "reviews_dev.csv", "latin-1"),
    ]
    assert [entry.blake3 for entry in spec.files] == [content_hash(paths[0].parent, [path.name]) for path in paths]
    assert spec.map.label == "Star_Rating"
    assert spec.categories.label in (
        {"ONE_STAR": "one star", "FIVE_STARS": "five stars"},
        {"FIVE_STARS": "five stars", "ONE_STAR": "one star"},
    )
    found = records(spec, mirror(tmp_path))
    assert len(found) == 80
    assert all('\n"quoted" größer' in record.text for record in found)


def test_json_lines_with_mentions_in_objects_of_objects(tmp_path: Path) -> None:
    rng, lines = random.Random(2), []
    for n in range(50):
        text = sentence(rng)
        mentions = []
        for kind, words in (("PersonName", PEOPLE), ("PLACE_NAME", PLACES)):
            word = next(word for word in words if word in text)
            at = text.index(word)
            mentions.append({"kind": kind, "position": {"begin": at, "last": at, "to": at + len(word)}, "w": word})
        lines.append(json.dumps({"no": n, "payload": {"utterance": text}, "marks": mentions}))
    path = put(mirror(tmp_path), "test/part.jsonl", "\n".join(lines) + "\n")
    spec = spec_of(tmp_path, path)
    assert (spec.format, spec.task, spec.files[0].split) == ("jsonl", "ner", "test")
    assert spec.categories.entity == {"PLACE_NAME": "place name", "PersonName": "person name"}
    for record in records(spec, mirror(tmp_path)):
        assert [covered(record, span) in PEOPLE + PLACES for span in record.spans] == [True, True]


def test_inclusive_ends_are_seen(tmp_path: Path) -> None:
    lines = [
        json.dumps({"text": f"We saw {word} there.", "ents": [[7, 6 + len(word), "animal"]]}) for word in NOUNS * 3
    ]
    spec = spec_of(tmp_path, put(mirror(tmp_path), "a.jsonl", "\n".join(lines)))
    assert spec.map.offsets.end == "inclusive"
    assert {covered(record, record.spans[0]) for record in records(spec, mirror(tmp_path))} == set(NOUNS)


def test_conll_with_comments_numbers_and_mentions_that_begin_with_i(tmp_path: Path) -> None:
    rng, blocks = random.Random(3), []
    for n in range(40):
        words = sentence(rng).split()
        tags = ["I-per" if word in PEOPLE else "I-geo-loc" if word in PLACES else "O" for word in words]
        lines = [f"{i}\t{word}\tX\t{tag}" for i, (word, tag) in enumerate(zip(words, tags, strict=True), 1)]
        blocks.append("\n".join([f"# sent_id = {n}", *lines]))
    path = put(mirror(tmp_path), "odd.trial.conll", "\n\n".join(blocks) + "\n")
    spec = spec_of(tmp_path, path)
    assert (spec.format, spec.task, spec.map.scheme) == ("conll", "ner", "IOB")
    assert spec.options["columns"] == ["_", "token", "_", "tag"]
    assert spec.files[0].split == "validation"
    assert spec.categories.entity == {"geo-loc": "geo location", "per": "person"}
    assert len(records(spec, mirror(tmp_path))) == 40


def test_a_folder_of_brat_with_events(tmp_path: Path) -> None:
    for n, (person, place) in enumerate(zip(PEOPLE, PLACES, strict=False)):
        text = f"{person} moved to {place}."
        at = text.index(place)
        put(mirror(tmp_path), f"train/{n}.txt", text)
        lines = [
            f"T1\tPerson 0 {len(person)}\t{person}",
            f"T2\tCity {at} {at + len(place)}\t{place}",
            f"T3\tMove_To {len(person) + 1} {len(person) + 6}\tmoved",
            "E1\tMove_To:T3 Agent:T1 EndPoint2:T2",
        ]
        put(mirror(tmp_path), f"train/{n}.ann", "\n".join(lines) + "\n")
    put(mirror(tmp_path), "README.md", "# no data")
    spec = spec_of(tmp_path, mirror(tmp_path))
    assert (spec.format, spec.task) == ("brat", "event")
    assert [(entry.split, entry.path) for entry in spec.files] == [("train", "train/*.txt")]
    assert spec.categories.event["Move_To"].name == "move to"
    assert spec.categories.event["Move_To"].roles == {"Agent": "agent", "EndPoint": "end point"}
    assert len(records(spec, mirror(tmp_path))) == len(PEOPLE)


def parquet(tmp_path: Path) -> Path:
    features = Features(
        {
            "tokens": Sequence(Value("string")),
            "ner_tags": Sequence(ClassLabel(names=["O", "B-CREATURE", "I-CREATURE"])),
            "doc": Value("int64"),
        }
    )
    rows = [
        {"tokens": ["A", word, "ran", "off", "."], "ner_tags": [0, 1, 0, 0, 0], "doc": n}
        for n, word in enumerate(NOUNS)
    ]
    path = mirror(tmp_path) / "validation-00000-of-00001.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    Dataset.from_list(rows, features=features).to_parquet(path)
    return path


def test_parquet_whose_features_name_the_tags(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, parquet(tmp_path))
    assert (spec.format, spec.task, spec.options) == ("parquet", "ner", {"class_names": True})
    assert spec.files[0].split == "validation"
    assert spec.categories.entity == {"CREATURE": "creature"}
    assert {covered(record, record.spans[0]) for record in records(spec, mirror(tmp_path))} == set(NOUNS)


def test_parquet_of_another_writer(tmp_path: Path) -> None:
    path = mirror(tmp_path) / "pairs.parquet"
    path.parent.mkdir(parents=True)
    rng = random.Random(4)
    rows = [
        {"q1": sentence(rng), "q2": sentence(rng), "is_duplicate": rng.random() < 0.5, "uid": f"u{n}"}
        for n in range(40)
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)
    spec = spec_of(tmp_path, path)
    assert (spec.format, spec.task, spec.map.label) == ("parquet", "pair", "is_duplicate")
    assert {*spec.categories.label} == {"true", "false"}


def test_a_folder_of_save_to_disk(tmp_path: Path) -> None:
    rng = random.Random(5)
    features = Features({"text": Value("string"), "label": ClassLabel(names=["even_number", "oddNumber"])})
    rows = [{"text": sentence(rng), "label": n % 2} for n in range(40)]
    whole = DatasetDict(
        {split: Dataset.from_list(rows, features=features) for split in ("train", "test")}  # type: ignore[misc]
    )
    whole.save_to_disk(mirror(tmp_path))
    spec = spec_of(tmp_path, mirror(tmp_path))
    assert (spec.format, spec.task) == ("arrow", "classification")
    assert {entry.split for entry in spec.files} == {"train", "test"}
    assert sorted(spec.categories.label.values()) == ["even number", "odd number"]


def test_parallel_files(tmp_path: Path) -> None:
    rng = random.Random(6)
    paths = []
    for split in ("train", "test"):
        paths.append(put(mirror(tmp_path), f"{split}_text.txt", "".join(sentence(rng) + "\n" for _ in range(30))))
        paths.append(
            put(mirror(tmp_path), f"{split}_labels.txt", "".join(f"{rng.randrange(2)}\n" for _ in range(30)))
        )
    spec = spec_of(tmp_path, *paths)
    assert (spec.format, spec.task) == ("parallel", "classification")
    assert [(entry.split, entry.path) for entry in spec.files] == [
        ("train", "train_text.txt"),
        ("test", "test_text.txt"),
    ]
    assert len(records(spec, mirror(tmp_path))) == 60


def test_files_whose_names_say_the_label(tmp_path: Path) -> None:
    rng = random.Random(12)
    paths = [
        put(mirror(tmp_path), f"notes.{mood}", "".join(f"Note {n} says {sentence(rng)}.\n\n" for n in range(30)))
        for mood in ("veryGlad", "so_sad")
    ]
    spec = spec_of(tmp_path, *paths)
    assert (spec.format, spec.task) == ("table", "classification")
    assert [entry.options["constants"] for entry in spec.files] == [{"label": "so_sad"}, {"label": "veryGlad"}]
    assert sorted(spec.categories.label.values()) == ["so sad", "very glad"]
    assert len(records(spec, mirror(tmp_path))) == 60


def test_options_that_a_letter_chooses(tmp_path: Path) -> None:
    rng = random.Random(13)
    rows = [
        {
            "question": f"Where is {rng.choice(PEOPLE)} now?",
            "options": rng.sample(PLACES, 3),
            "correct": rng.choice("ABC"),
        }
        for _ in range(30)
    ]
    spec = spec_of(tmp_path, put(mirror(tmp_path), "dev.jsonl", "\n".join(map(json.dumps, rows))))
    assert spec.task == "choice"
    assert spec.map.candidates == {"A": "options.0", "B": "options.1", "C": "options.2"}
    for record, row in zip(records(spec, mirror(tmp_path)), rows, strict=True):
        assert record.categories[record.labels[0]].name == row["options"]["ABC".index(row["correct"])]


def test_json_with_a_list_for_each_split(tmp_path: Path) -> None:
    rng = random.Random(7)
    content = {
        split: [[sentence(rng), rng.choice(["pay_bill", "book_flight"])] for _ in range(20)]
        for split in ("train", "val", "oos_test")
    }
    spec = spec_of(tmp_path, put(mirror(tmp_path), "all.json", json.dumps(content)))
    assert {entry.split: entry.options["rows"] for entry in spec.files} == {
        "train": ["train[]"],
        "validation": ["val[]"],
        "test": ["oos_test[]"],
    }
    assert sorted(spec.categories.label.values()) == ["book flight", "pay bill"]


def test_a_file_of_any_size_is_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(8)
    rows = [{"text": sentence(rng), "label": f"kind_{n % 3}", "pad": "x" * 300} for n in range(2_000)]
    paths = {
        "jsonl": put(mirror(tmp_path) / "lines", "a.jsonl", "\n".join(map(json.dumps, rows))),
        "json": put(mirror(tmp_path) / "list", "a.json", json.dumps({"version": 1, "data": rows})),
    }
    monkeypatch.setattr(sample, "MAX_BYTES", 50_000)
    monkeypatch.setattr(sample, "ALL", 500)
    for form, path in paths.items():
        made = draft([path])
        assert made.best.trial.spec.format == form
        assert not made.whole
        assert {*made.best.trial.spec.categories.label} == {"kind_0", "kind_1", "kind_2"}
        assert "a rarer category may be missing" in text_of(made)


def test_the_file_says_what_was_guessed_and_what_could_not_be_inferred(tmp_path: Path) -> None:
    paths = reviews(tmp_path)
    put(mirror(tmp_path), "LICENSE.txt", "do as you please")
    text = text_of(draft(paths))
    assert "licence: not stated  # unknown: copy the publisher's words; see LICENSE.txt" in text
    assert "# guess: by 'training'" in text
    assert "# The first record: " in text
    assert "# Other candidates, by how likely they are:\n# 2. " in text
    assert all(len(line) <= 115 for line in text.splitlines() if line.startswith("#"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        ("a,b\n1,2\n".encode("utf-16"), "is UTF-16; save it as UTF-8"),
        (b'{"notes": [{"said": "Hi."}]}\n' * 9, "jsonl reads a.bin, but no field"),
        (b"\x00\x01\x02" * 50, "no format can read"),
    ],
)
def test_what_cannot_be_drafted_gives_one_clear_error(tmp_path: Path, content: bytes, said: str) -> None:
    with pytest.raises(UserError, match=said):
        draft([put(mirror(tmp_path), "a.bin", content)])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a.csv.gz", "packed with gzip; unpack it"),
        ("a.zip", "packed with zip; unpack it"),
        ("a.xlsx", "a workbook; save each sheet as CSV in UTF-8"),
        ("a.docx", "a document of .docx; save its text"),
        ("a.pdf", "a document of .pdf; save its text"),
    ],
)
def test_packed_files_and_documents_say_how_to_save_them(tmp_path: Path, name: str, said: str) -> None:
    path = put(mirror(tmp_path), name, b"%PDF-1.7\nsome words of a page\n")
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(b"text,label\na b c,d\n"))
    elif not name.endswith(".pdf"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.csv", "text,label\na b c,d\n")
    with pytest.raises(UserError, match=said):
        draft([path])
    data = put(mirror(tmp_path), "train.jsonl", '{"text": "a b c d", "label": "x"}\n' * 9)
    assert [entry["path"] for entry in draft([path, data]).best.arranged.files] == ["train.jsonl"]


def test_a_missing_file_and_a_bad_name_give_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file or folder"):
        draft([tmp_path / "nothing.csv"])
    with pytest.raises(UserError, match="rename it"):
        draft([put(tmp_path / "My Data", "a.jsonl", '{"text": "a b c d", "label": 1}\n' * 3)])


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("B-geo_location", "geo location"),
        ("I-PER", "person"),
        ("__label__Sci_Fi", "sci fi"),
        ("QuestionAnswer", "question answer"),
        ("HTTPServerError", "HTTP server error"),
        ("arrive_date.day_name", "arrive date: day name"),
        ("SPORTS_NEWS", "sports news"),
        ("Theme2", "theme"),
        ("03_harbour", "harbour"),
        ("DNA", "DNA"),
        ("地址", "地址"),
        ("1", "1"),
        ("1.0", "1.0"),
        ("4.5 stars", "4.5 stars"),
        ("sci.med", "sci: med"),
    ],
)
def test_names_in_plain_words(label: str, name: str) -> None:
    assert plain_name(label) == name


def test_no_two_labels_have_one_name_and_codes_are_reported() -> None:
    assert plain_names(["Theme", "theme_2", "atis"]) == {"Theme": "theme", "theme_2": "theme_2", "atis": "atis"}
    assert plain_names(["atis_meal", "atis_flight", "atis_fare"])["atis_meal"] == "meal"
    assert plain_names(["neg", "negative"]) == {"neg": "neg", "negative": "negative"}
    assert plain_names(["1 star", "2 stars", "star"]) == {"1 star": "1 star", "2 stars": "stars", "star": "star"}
    names = ["1", "F", "MACH", "ART: MACH", "ЛОК", "person", "HTTP error", "地址"]
    assert [is_code(name) for name in names] == [True] * 5 + [False] * 3


@given(st.sets(st.text("a1 _N", min_size=1, max_size=4) | st.sampled_from(["neg", "negative", "B-neg", "n: a"])))
def test_names_are_as_many_as_labels(labels: set[str]) -> None:
    assert len({*plain_names(labels).values()}) == len(labels)


def test_check_tells_what_either_side_lacks(tmp_path: Path) -> None:
    paths = reviews(tmp_path)
    spec = spec_of(tmp_path, *paths)
    assert differences(spec, mirror(tmp_path))[0] == []
    label = {"FIVE_STARS": "five stars", "TWO_STARS": "two stars"}
    wrong = spec.model_copy(update={"categories": spec.categories.model_copy(update={"label": label})})
    found, rows = differences(wrong, mirror(tmp_path))
    assert rows == 80
    assert [(one.kind, one.label, one.lacking) for one in found] == [
        ("label", "ONE_STAR", "spec"),
        ("label", "TWO_STARS", "data"),
    ]
    assert found[0].occurs > 0


def test_try_shows_rows_and_counts_until_its_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = reviews(tmp_path)
    spec = spec_of(tmp_path, *paths)
    folder = source_folder(spec, tmp_path / "raw", tmp_path / "specs")
    monkeypatch.setattr("pipelines.drafting.preview.SECONDS", -1.0)
    assert preview(spec, folder, 2).kept == 2
    monkeypatch.setattr("pipelines.drafting.preview.SECONDS", HANGS)
    found = preview(spec, folder, 2)
    assert len(found.first) == 2
    raw, record = found.first[0]
    assert isinstance(record, Record)
    assert json.loads(raw)["Body"] == record.text
    assert found.kept == found.categories.total() == 80


def test_rows_that_a_spec_leaves_out_are_not_its_own(tmp_path: Path) -> None:
    paths = reviews(tmp_path)
    spec = spec_of(tmp_path, *paths)
    label = spec.map.label or ""
    map_ = type(spec.map).model_validate(
        {**spec.map.model_dump(by_alias=True, exclude_unset=True), "when": {label: {"not_equal": "FIVE_STARS"}}}
    )
    some = spec.model_copy(update={"map": map_})
    kept = preview(some, mirror(tmp_path), 2).kept
    assert 0 < kept < 80
    found, rows = differences(some, mirror(tmp_path))
    assert rows == kept
    assert [(one.label, one.lacking) for one in found] == [("FIVE_STARS", "data")]


def hub(tmp_path: Path, features: Features, rows: Callable[[int], dict[str, Any]]) -> str:
    folder = tmp_path / "hub"
    folder.mkdir()
    for split in ("train", "test"):
        some = [rows(n) for n in range(30)]
        Dataset.from_list(some, features=features).to_parquet(folder / f"{split}-00000-of-00001.parquet")
    return f"hf:{folder}"


def test_a_dataset_of_the_hub_by_its_features(tmp_path: Path) -> None:
    features = Features({"text": Value("string"), "feeling": ClassLabel(names=["very_sad", "veryGlad"])})
    rng = random.Random(9)
    address = hub(tmp_path, features, lambda n: {"text": sentence(rng), "feeling": n % 2})
    specs = tmp_path / "specs"
    (specs / "datasets").mkdir(parents=True)
    made = drafted(address, None, "feelings", specs)
    (specs / "datasets" / "feelings.yaml").write_text(text_of(made))
    spec = dataset_spec("feelings", specs)
    assert (spec.task, spec.instruction, spec.options) == ("classification", "feeling", {"class_names": True})
    assert sorted(spec.categories.label.values()) == ["very glad", "very sad"]
    assert [(entry.split, entry.path, entry.blake3) for entry in spec.files] == [
        ("train", "train.parquet", None),
        ("test", "test.parquet", None),
    ]
    assert (spec.fetch[0].url, spec.fetch[0].splits) == ("hf:../hub", ["train", "test"])
    folder = source_folder(spec, tmp_path / "raw", specs)  # fetches as the spec says
    assert len(records(spec, folder)) == 60


@pytest.mark.parametrize("config", ["small", "Large_v2"])
def test_a_config_of_the_hub_is_a_folder_of_its_dataset(tmp_path: Path, config: str) -> None:
    rng, listed = random.Random(11), []
    for name in ("small", "Large_v2"):
        rows = [{"text": sentence(rng), "label": f"{name} {'ab'[n % 2]}"} for n in range(30)]
        (tmp_path / "hub" / name).mkdir(parents=True)
        Dataset.from_list(rows).to_parquet(tmp_path / "hub" / name / "train.parquet")
        listed.append({"config_name": name, "data_files": [{"split": "train", "path": f"{name}/train.parquet"}]})
    (tmp_path / "hub" / "README.md").write_text(f"---\n{json.dumps({'configs': listed})}\n---\n")
    specs = tmp_path / "specs"
    (specs / "datasets").mkdir(parents=True)
    made = drafted(f"hf:{tmp_path / 'hub'}", config, "sizes", specs)
    (specs / "datasets" / "sizes.yaml").write_text(text_of(made))
    spec = dataset_spec("sizes", specs)
    assert (spec.folder, [entry.path for entry in spec.files]) == ("sizes", [f"{config}/train.parquet"])
    found = records(spec, source_folder(spec, tmp_path / "raw", specs))
    assert len(found) == 30 and {*spec.categories.label} == {f"{config} a", f"{config} b"}


def test_translations_of_the_hub_are_written(tmp_path: Path) -> None:
    from datasets import Translation

    features = Features({"id": Value("string"), "translation": Translation(languages=["de", "en"])})
    rng = random.Random(10)

    def row(n: int) -> dict[str, Any]:
        return {"id": str(n), "translation": {"en": sentence(rng), "de": f"Heute ist {sentence(rng)}"}}

    made = drafted(hub(tmp_path, features, row), None, None, tmp_path)
    assert made.best.trial.guess.task == "seq2seq"
    assert made.best.trial.guess.map == {"text": "translation.en", "target": "translation.de"}


def test_no_such_dataset_gives_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="hf:"):
        drafted(f"hf:{tmp_path / 'nothing'}", None, None, tmp_path)


@pytest.mark.parametrize("file", ["train.zip", "train.tar"])
def test_a_damaged_dataset_of_the_hub_gives_one_clear_error(tmp_path: Path, file: str) -> None:
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / file).write_bytes(b"damaged " * 100)
    with pytest.raises(UserError, match=r"/hub: (File is not a zip file|invalid header); correct"):
        drafted(f"hf:{tmp_path / 'hub'}", None, None, tmp_path)


def unknown(tmp_path: Path) -> dict[str, list[Path]]:
    """A dataset of each kind, in a folder of its own."""
    raw, rng = tmp_path / "raw", random.Random(11)
    texts = [sentence(rng) for _ in range(30)]
    table = "body,mood\n" + "".join(f'"{text}, or so",{("Glad", "Sad")[n % 2]}\n' for n, text in enumerate(texts))
    lines = "".join(
        json.dumps({"a": text, "b": text[::-1], "verdict": n % 2}) + "\n" for n, text in enumerate(texts)
    )
    blocks = "\n\n".join(
        "\n".join(f"{word} {'B-Town' if word in PLACES else 'O'}" for word in text.split()) for text in texts
    )
    for n, text in enumerate(texts[:5]):
        put(raw / "d_brat", f"{n}.txt", text)
        put(raw / "d_brat", f"{n}.ann", f"T1\tPerson 0 {text.index(' ')}\t{text.split()[0]}\n")
    rows = [{"text": text, "label": n % 2} for n, text in enumerate(texts)]
    columns = put(raw / "e_parquet", "train.parquet", "")
    features = Features({"text": Value("string"), "label": ClassLabel(names=["no_fault", "BadFault"])})
    Dataset.from_list(rows, features=features).to_parquet(columns)
    return {
        "a_csv": [put(raw / "a_csv", "all.csv", table)],
        "b_jsonl": [put(raw / "b_jsonl", "all.jsonl", lines)],
        "c_conll": [put(raw / "c_conll", "all.txt", blocks + "\n")],
        "d_brat": [raw / "d_brat"],
        "e_parquet": [columns],
    }


def reviewed(count: int = 40, **more: Callable[[int], Any]) -> str:
    """Lines of reviews, each with more fields by its number."""
    rows = [
        {"text": f"review number {i} of the kettle"} | {k: of(i) for k, of in more.items()} for i in range(count)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_numbers_beyond_floats_are_no_numbers(tmp_path: Path) -> None:
    labelled = reviewed(label=lambda i: ("good", "bad")[i % 2], n=lambda i: 10**400 + i)
    assert spec_of(tmp_path, put(mirror(tmp_path), "train.jsonl", labelled)).map.label == "label"
    scored = reviewed(5_000, score=lambda i: i % 40 / 10)  # the sample is drawn from the first rows
    odd = reviewed(2, score=lambda i: (10**400, "inf")[i])
    spec = spec_of(tmp_path, put(tmp_path / "raw" / "scored", "train.jsonl", scored + odd))
    assert (spec.task, spec.categories.value) == ("regression", [0.0, 1.0, 2.0, 3.0, 4.0])


def test_half_a_surrogate_pair_is_in_no_spec(tmp_path: Path) -> None:
    """YAML can't hold it. Rows with such a label are refused, and such a field is not used."""
    rows = reviewed(
        **{"label": lambda i: ("cut \ud83d", "good", "bad")[i % 3], "cut \ud83d": lambda i: "xy"[i % 2]}
    )
    path = put(mirror(tmp_path), "train.jsonl", rows)
    spec = spec_of(tmp_path, path)
    assert (spec.map.label, sorted(spec.categories.label)) == ("label", ["bad", "good"])
    made = draft([path])
    assert (made.kept, made.reasons) == (26, {"unknown category": 14})


@pytest.mark.parametrize("out", ["file/shop.yaml", "file/more/shop.yaml"])
def test_a_spec_that_cannot_be_written_gives_one_clear_error(tmp_path: Path, out: str) -> None:
    put(tmp_path, "file", "")
    path = put(mirror(tmp_path), "train.jsonl", reviewed(label=lambda i: ("good", "bad")[i % 2]))
    done = CliRunner().invoke(app, ["draft", str(path), "--out", str(tmp_path / out)])
    assert isinstance(done.exception, UserError)
    assert "shop.yaml: cannot be written: Not a directory; choose another file" in str(done.exception)


@pytest.mark.parametrize("there", [True, False])
def test_a_spec_names_its_schema_for_editors_where_there_is_one(tmp_path: Path, there: bool) -> None:
    specs, path = tmp_path / "specs", put(mirror(tmp_path), "train.jsonl", reviewed(label=lambda i: "ab"[i % 2]))
    if there:
        put(specs, "schemas/dataset.json", "{}")
    out = specs / "datasets" / "shop.yaml"
    done = CliRunner().invoke(app, ["draft", str(path), "--out", str(out)])
    assert done.exit_code == 0, done.output
    named = re.findall(r"\$schema=(.+)", out.read_text())
    assert [(out.parent / name).exists() for name in named] == [True] * there


def test_a_draft_is_not_printed_as_json(tmp_path: Path) -> None:
    path = put(mirror(tmp_path), "train.jsonl", reviewed(label=lambda i: ("good", "bad")[i % 2]))
    done = CliRunner().invoke(app, ["draft", str(path), "--json"])
    assert done.exit_code == 2 and "--json is for --check" in done.output


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_from_unknown_files_to_records_in_two_commands(tmp_path: Path) -> None:
    specs, root, datasets = tmp_path / "specs", str(tmp_path / "store"), unknown(tmp_path)

    def ubert(*words: str) -> str:
        done = CliRunner().invoke(app, [*words], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    for name, paths in datasets.items():
        said = ubert("draft", *map(str, paths), "--out", str(specs / "datasets" / f"{name}.yaml"))
        assert f"ubert ingest {name} --data {tmp_path / 'raw'} --specs {specs}" in said.replace("\n", "")
    ubert("ingest", *datasets, "--data", str(tmp_path / "raw"), "--specs", str(specs), "--root", root)
    for name in datasets:
        assert name in ubert("peek", "corpus", name, "--root", root)
    said = ubert("try", "a_csv", "-n", "1", "--data", str(tmp_path / "raw"), "--specs", str(specs))
    assert "glad" in said
    said = ubert("draft", "--check", "a_csv", "--data", str(tmp_path / "raw"), "--specs", str(specs))
    assert "the same categories (30 rows)" in said
