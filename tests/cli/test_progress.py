"""The progress of a long job where there is no terminal."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pipelines import progress
from ubert.training.logs.pace import Pace, format_left


def look_every(seconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let so many seconds pass between two looks at the clock."""
    clock = iter(range(0, 1000, seconds))
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))


def test_a_log_has_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    look_every(4, monkeypatch)
    with progress.meter("ingest", 1000, "rows") as advance:
        for _ in range(10):
            advance(100, 2000)
    assert capsys.readouterr().err.splitlines() == [
        "ingest: 30%, 6,000 rows, 500 rows/s, 0:00:28 left",
        "ingest: 60%, 12,000 rows, 500 rows/s, 0:00:16 left",
        "ingest: 90%, 18,000 rows, 500 rows/s, 0:00:04 left",
    ]


def test_a_log_counts_items_that_take_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    look_every(4, monkeypatch)
    assert list(progress.progress(range(6), 6, "[cells]")) == list(range(6))
    assert capsys.readouterr().err.splitlines() == ["[cells]: 3 of 6, 0:00:12 left", "[cells]: 6 of 6"]


def test_what_was_done_before_says_nothing_of_the_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    look_every(4, monkeypatch)
    with progress.meter("predict", 1000, "texts") as advance:
        advance(900, 0)
        for _ in range(3):
            advance(10, 10)
    assert capsys.readouterr().err.splitlines() == ["predict: 92%, 20 texts, 2 texts/s, 0:00:32 left"]


def test_a_log_of_an_unknown_size_counts_what_is_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    look_every(4, monkeypatch)
    with progress.meter("stdin", 0, "texts") as advance:
        for _ in range(3):
            advance(0, 512)
    assert capsys.readouterr().err.splitlines() == ["stdin: 1,536 texts, 128 texts/s"]


def test_a_short_job_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.meter("ingest", 10, "rows") as advance:
        advance(10, 1)
    assert capsys.readouterr().err == ""


def test_the_first_item_tells_no_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    look_every(20, monkeypatch)
    list(progress.progress("abc", 3, "cells"))
    assert capsys.readouterr().err.splitlines() == [
        "cells: 1 of 3",
        "cells: 2 of 3, 0:00:20 left",
        "cells: 3 of 3",
    ]


def times_left(seconds: list[float], total: int) -> list[float]:
    """The times left that a job shows after each item, of which each takes so many seconds."""
    pace, now, shown = Pace(), 0.0, []
    pace.observe(now, 0)
    for done, taken in enumerate(seconds, 1):
        now += taken
        pace.observe(now, done)
        left = pace.left(now, total)
        assert left is not None
        shown.append(left)
    return shown


def test_the_time_left_is_exact_at_a_steady_pace() -> None:
    assert times_left([2.0] * 50, 50) == pytest.approx([2.0 * (49 - i) for i in range(50)])


def test_the_time_left_is_smooth_where_items_take_unequal_times() -> None:
    """Nine quick items, then one that takes ten times as long, over and over; the first minute may be rough."""
    seconds = ([1.0] * 9 + [10.0]) * 30
    shown = times_left(seconds, 600)[60:]
    true = [1.9 * (539 - i) for i in range(len(shown))]
    assert all(left == pytest.approx(expected, rel=0.2) for left, expected in zip(shown, true, strict=True))


def test_the_time_left_follows_a_pace_that_changes_for_good() -> None:
    shown = times_left([1.0] * 600 + [3.0] * 300, 2000)
    assert shown[-1] == pytest.approx(3.0 * 1100, rel=0.1)


def test_between_two_items_the_time_left_counts_down_by_one_of_them_at_most() -> None:
    pace = Pace()
    assert pace.left(0.0, 10) is None
    for now in range(5):
        pace.observe(10.0 * now, now)
    assert [pace.left(40.0 + waited, 10) for waited in (0, 4, 10, 1000)] == pytest.approx([60, 56, 50, 50])


def test_work_of_an_earlier_run_is_no_pace() -> None:
    pace = Pace()
    pace.observe(0.0, 9000)
    pace.observe(10.0, 9010)
    assert pace.left(10.0, 10_000) == pytest.approx(990)


def test_a_line_comes_every_ten_seconds_with_the_time_left_while_there_is_any(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    look_every(5, monkeypatch)
    with progress.meter("hashing", 4, "MB") as advance:
        for files, megabytes in ((0, 5), (0, 5), (2, 10), (0, 20), (1, 0), (1, 20)):
            advance(files, megabytes)
    assert capsys.readouterr().err.splitlines() == [
        "hashing: 0%, 10 MB, 1 MB/s",
        "hashing: 50%, 40 MB, 2 MB/s, 0:00:10 left",
        "hashing: 100%, 60 MB, 2 MB/s",
    ]


def test_a_terminal_shows_how_much_is_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", "120")):
        monkeypatch.setenv(name, value)
    assert list(progress.progress("abc", 3, "folds")) == ["a", "b", "c"]
    assert "3/3" in capsys.readouterr().err
    with progress.transfer() as show:
        for name, here, total in (("a", 5, 10), ("[b]", 1, None), ("a", 8, 10)):
            show(name, here, total)
    shown = capsys.readouterr().err
    assert "8/10 bytes" in shown and "[b]" in shown and "1/? bytes" in shown


@pytest.mark.parametrize(
    ("first", "second", "half"), [(10.0, 20.0, 30.0), (200.0, 400.0, 100.0), (8000.0, 8010.0, 600.0)]
)
def test_old_work_loses_half_its_weight_in_a_quarter_of_the_time_within_bounds(
    first: float, second: float, half: float
) -> None:
    pace = Pace()
    for now, done in ((0.0, 0), (first, 1), (second, 3)):
        pace.observe(now, done)
    weight = 0.5 ** ((second - first) / half)
    assert pace.rate == pytest.approx((weight + 2) / (first * weight + second - first))


def test_the_time_left_is_never_negative_and_may_be_unknown() -> None:
    pace = Pace()
    pace.observe(0.0, 0)
    assert pace.rate is None
    for now, done in ((10.0, 1), (20.0, 3), (20.0, 9)):  # the last one comes at no later time
        pace.observe(now, done)
    assert (pace.left(20.0, 2), pace.left(20.0, None)) == (0.0, None)
    assert pace.left(20.0, 5) == pytest.approx(2 / pace.rate)  # type: ignore[operator]
    assert [format_left(left) for left in (None, 89.6, 3601.0)] == ["", "0:01:30 left", "1:00:01 left"]
