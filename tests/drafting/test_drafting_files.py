"""Which files a draft takes as data, and how it reads them: encodings, quotes, and files it leaves out."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from drafts import PEOPLE, mirror, put, records, sentence, spec_of

from pipelines.drafting.draft import draft
from pipelines.drafting.preview import preview
from pipelines.drafting.write import text_of

RNG = random.Random(8)


@pytest.mark.parametrize("words", ["café naïve", "скучный фильм", "无聊的电影"])
def test_a_damaged_line_does_not_change_the_encoding(tmp_path: Path, words: str) -> None:
    rows = [{"text": f"{words} {sentence(RNG)}", "label": "ab"[n % 2]} for n in range(200)]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    damaged = b'{"text": "a bro\xffken text", "label": "a"}\n'
    spec = spec_of(tmp_path, put(mirror(tmp_path), "train.jsonl", lines + damaged))
    assert [entry.encoding for entry in spec.files] == ["utf-8"]
    found = preview(spec, mirror(tmp_path), 1)
    assert (found.kept, found.reasons) == (200, {"wrong encoding": 1})


def test_quoted_fields_with_equally_many_commas_are_not_cut(tmp_path: Path) -> None:
    rows = [f'{sentence(RNG)},"{["Paris, France", "Rome, Italy"][n % 2]}"\n' for n in range(60)]
    spec = spec_of(tmp_path, put(mirror(tmp_path), "train.csv", f"name,city\n{''.join(rows)}"))
    assert spec.options == {"separator": ",", "quoting": "csv", "header": True}
    assert (spec.map.text, spec.map.label) == (["name"], "city")
    assert len(records(spec, mirror(tmp_path))) == 60


def test_quoted_texts_with_a_comma_each_are_not_cut(tmp_path: Path) -> None:
    rows = [f'"{sentence(RNG)}, {sentence(RNG)}",{n % 5}\n' for n in range(60)]
    spec = spec_of(tmp_path, put(mirror(tmp_path), "train.csv", "".join(rows)))
    assert spec.options == {"separator": ",", "quoting": "csv", "columns": ["text", "label"]}
    assert all(", " in record.text for record in records(spec, mirror(tmp_path)))


def test_quotes_within_quoted_fields_are_not_part_of_the_text(tmp_path: Path) -> None:
    quotation = f'He said ""{sentence(RNG)}"" twice.'
    rows = [f'"{quotation}"\t{"ab"[n % 2]}\n' if n % 3 else f"{sentence(RNG)}\t{'ab'[n % 2]}\n" for n in range(60)]
    spec = spec_of(tmp_path, put(mirror(tmp_path), "train.tsv", f"text\tlabel\n{''.join(rows)}"))
    assert spec.options == {"quoting": "csv", "header": True}
    assert quotation.replace('""', '"') in {record.text for record in records(spec, mirror(tmp_path))}


def test_files_named_source_and_target_are_parallel(tmp_path: Path) -> None:
    for name, longer in (("source", ""), ("target", " and was late")):
        texts = "".join(f"Note{n} says {sentence(RNG)}{longer}\n" for n in range(50))
        put(mirror(tmp_path), f"{name}.txt", texts)
    put(mirror(tmp_path), "SOURCE.md", "from the attic")
    spec = spec_of(tmp_path, mirror(tmp_path))
    assert (spec.format, spec.task, spec.files[0].path) == ("parallel", "seq2seq", "source.txt")
    assert spec.options["beside"] == {"target": "target.txt"}


def test_files_that_end_in_two_languages_are_parallel(tmp_path: Path) -> None:
    for language in ("en", "de"):
        put(mirror(tmp_path), f"train.{language}", "".join(f"On day {n} {sentence(RNG)}\n" for n in range(60)))
    spec = spec_of(tmp_path, *(mirror(tmp_path) / f"train.{language}" for language in ("en", "de")))
    assert (spec.format, spec.task) == ("parallel", "seq2seq")


def test_a_file_that_seems_to_be_about_the_data_is_named(tmp_path: Path) -> None:
    rows = "".join(f"{sentence(RNG)},{'ab'[n % 2]}\n" for n in range(60))
    for name in ("citation.csv", "other.csv"):
        put(mirror(tmp_path), name, f"text,label\n{rows}")
    put(mirror(tmp_path), "LICENSE-2.0.txt", "Do as you like.\n")
    made = draft([mirror(tmp_path)])
    assert made.gathered.paths == ["citation.csv", "other.csv"]
    assert "# Left out: LICENSE-2.0.txt: by its name it describes the data" in text_of(made)
    named = draft([mirror(tmp_path), mirror(tmp_path) / "LICENSE-2.0.txt"])
    assert "LICENSE-2.0.txt" in named.gathered.paths and not named.gathered.about


@pytest.mark.parametrize("more", [{"meta": {}}, {"meta": {"x": {}}}])
def test_an_empty_object_is_no_list_of_rows(tmp_path: Path, more: dict[str, Any]) -> None:
    rows = [{"text": sentence(RNG), "label": "ab"[n % 2], **more} for n in range(60)]
    spec = spec_of(tmp_path, put(mirror(tmp_path), "train.json", json.dumps(rows)))
    assert (spec.format, spec.map.text, spec.map.label) == ("json", ["text"], "label")


def test_powers_are_no_numbers_of_lines(tmp_path: Path) -> None:
    rows = "".join(f"{PEOPLE[n % 6]}\t{'²³'[n % 2]}\n" + "\n" * (n % 5 == 4) for n in range(100))
    assert spec_of(tmp_path, put(mirror(tmp_path), "train.tsv", rows)).format == "conll"
    rows = "".join(f"{sentence(RNG)}\t{['²', '3', '--1'][n % 3]}\n" for n in range(60))
    spec = spec_of(tmp_path, put(mirror(tmp_path), "train.tsv", rows))
    assert {*spec.categories.label} == {"²", "3", "--1"}


def test_a_mirror_above_the_working_folder_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"text": sentence(RNG), "label": "ab"[n % 2]} for n in range(60)]
    put(mirror(tmp_path), "part/all.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    made = draft([Path("../raw/odd/part/all.jsonl")], data=Path("../raw"))
    assert (made.name, made.gathered.folder, made.gathered.paths) == ("odd", mirror(tmp_path), ["part/all.jsonl"])


def test_control_characters_of_labels_are_no_part_of_comments(tmp_path: Path) -> None:
    rows = [{"text": sentence(RNG), "label": "x\x07" if n % 2 else "y\x1b"} for n in range(60)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    assert {*spec_of(tmp_path, put(mirror(tmp_path), "all.jsonl", lines)).categories.label} == {"x\x07", "y\x1b"}


def test_one_line_with_rows_by_key_is_no_single_row(tmp_path: Path) -> None:
    rows = {f"r{n}": {"text": sentence(RNG), "label": "ab"[n % 2]} for n in range(60)}
    spec = spec_of(tmp_path, put(mirror(tmp_path), "all.json", json.dumps(rows)))
    assert (spec.format, spec.options["rows"], spec.map.text) == ("json", ["{key}"], ["text"])
    assert len(records(spec, mirror(tmp_path))) == 60


def test_columns_that_no_path_can_name_get_other_names(tmp_path: Path) -> None:
    rows = "".join(f"{sentence(RNG)},{'ab'[n % 2]},{n}\n" for n in range(60))
    spec = spec_of(tmp_path, put(mirror(tmp_path), "all.csv", f"review.text,polite?,number\n{rows}"))
    assert spec.options == {"separator": ",", "header": True, "columns": ["text", "label", "number"]}
    assert (spec.map.text, spec.map.label) == (["text"], "label")
    assert len(records(spec, mirror(tmp_path))) == 60


def test_the_only_line_of_a_file_may_have_its_rows_far_within(tmp_path: Path) -> None:
    rows = [{"text": sentence(RNG), "intent": "ab"[n % 2]} for n in range(60)]
    content = json.dumps({"nlu": {"common": {"examples": rows}}})
    spec = spec_of(tmp_path, put(mirror(tmp_path), "all.json", content))
    assert (spec.format, spec.options["rows"]) == ("json", ["nlu.common.examples[]"])
