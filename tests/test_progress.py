"""How far a long job is, said where there is no terminal."""

from __future__ import annotations

import pytest

from pipelines import progress


def test_a_log_has_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter(range(0, 1000, 4))  # a look at the clock every four seconds
    monkeypatch.setattr("pipelines.progress.time.monotonic", lambda: float(next(clock)))
    with progress.meter("ingest", 1000, "rows") as advance:
        for _ in range(10):
            advance(100, 2000)
    assert capsys.readouterr().err.splitlines() == [
        "ingest: 30%, 6,000 rows, 500 rows/s, 28 s left",
        "ingest: 60%, 12,000 rows, 500 rows/s, 16 s left",
        "ingest: 90%, 18,000 rows, 500 rows/s, 4 s left",
    ]


def test_a_short_job_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.meter("ingest", 10, "rows") as advance:
        advance(10, 1)
    assert capsys.readouterr().err == ""
