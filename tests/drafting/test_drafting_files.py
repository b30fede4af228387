"""Which files a draft takes as data, and how it reads them: encodings, quotes, and files it leaves out."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from drafts import mirror, put, records, sentence, spec_of

from pipelines.drafting.preview import preview

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
