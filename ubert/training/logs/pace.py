"""The speed of a long job and its remaining time, smoothed when items take unequal times."""

from __future__ import annotations

from datetime import timedelta

from rich.progress import ProgressColumn, Task
from rich.text import Text

SHORTEST, LONGEST = 30.0, 600.0  # bounds of the half-life in seconds


class Pace:
    """A moving average of the speed. The weight of old work halves with each quarter of the job's time so
    far, within bounds."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._at = self._done = 0.0  # at the last change
        self._gap = 0.0  # seconds between the last two changes
        self._work = self._seconds = 0.0  # weighted sums

    def observe(self, now: float, done: float) -> None:
        """Record how much is done at a time in seconds. Work before the first call does not count."""
        if self._began is None:
            self._began, self._at, self._done = now, now, done
        if done == self._done or now <= self._at:
            return
        self._gap = now - self._at
        weight = 0.5 ** (self._gap / min(max((now - self._began) / 4, SHORTEST), LONGEST))
        self._work = self._work * weight + done - self._done
        self._seconds = self._seconds * weight + self._gap
        self._at, self._done = now, done

    @property
    def rate(self) -> float | None:
        """Work per second; None before the first item is done."""
        return self._work / self._seconds if self._work > 0 else None

    def left(self, now: float, total: float | None) -> float | None:
        """Return the remaining seconds. Between two items they count down, by at most the time of one item."""
        if self.rate is None or total is None:
            return None
        return max((total - self._done) / self.rate - min(now - self._at, self._gap), 0.0)


def format_left(left: float | None) -> str:
    """Format the remaining time, as "0:01:30 left"; empty if it is not known."""
    return "" if left is None else f"{timedelta(seconds=round(left))} left"


def pace_of(task: Task) -> Pace:
    """Return the pace of a progress bar's task, which its columns share."""
    pace: Pace = task.fields.setdefault("pace", Pace())
    pace.observe(task.get_time(), task.completed)
    return pace


class TimeLeft(ProgressColumn):
    """A progress bar's column with the remaining time."""

    def render(self, task: Task) -> Text:
        left = None if task.finished else pace_of(task).left(task.get_time(), task.total)
        return Text(format_left(left), style="progress.remaining")
