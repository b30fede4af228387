"""Which files a draft takes as data, and how it reads them: encodings, quotes, and files it leaves out."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from drafts import mirror, put, sentence, spec_of

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
