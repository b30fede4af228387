"""Drafts a spec: finds readings of the files, guesses maps for each reading, tests the guesses and ranks them."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.drafting import sample
from pipelines.drafting.categories import counted
from pipelines.drafting.formats.arrange import Arranged, arranged
from pipelines.drafting.formats.files import Gathered, gather
from pipelines.drafting.formats.readings import packed
from pipelines.drafting.language import guess_language
from pipelines.drafting.tasks.maps import guesses
from pipelines.drafting.trial import GOOD, Rows, Trial, described, run, tried
from pipelines.sources import RawRow
from ubert.schema.errors import UserError
from ubert.schema.names import NAME
from ubert.schema.record import Record
from ubert.schema.specs.dataset import Categories

SAMPLE = 400  # rows to test guesses on
LOOKED_AT = 4_000  # rows of each file from which these are drawn
FILES = 60  # maximum files of a glob
READINGS, SHOWN = 4, 4  # readings to test; candidates to show
SECONDS = 20.0  # time to count labels beyond the sample


@dataclass
class Candidate:
    """A way to read and map the files."""

    arranged: Arranged
    trial: Trial

    @property
    def score(self) -> float:
        return self.arranged.reading.score * self.trial.score

    @property
    def reasons(self) -> list[str]:
        share = f"{len(self.trial.kept):,} of {self.trial.rows.total():,} rows"
        fit = self.trial.fit
        cut = [f"only {fit:.0%} of the mentions begin and end at words"] if fit < GOOD else []
        return [self.arranged.reading.why, *self.trial.guess.reasons, *cut, f"{share} become records"]


@dataclass
class Draft:
    """Candidates, likeliest first, and the counts of rows for the first."""

    name: str
    gathered: Gathered
    candidates: list[Candidate]
    language: tuple[str, str]
    whole: bool = True  # whether the labels of all rows were counted
    reasons: Counter[str] = field(default_factory=Counter)  # of rejected rows
    firsts: dict[str, str] = field(default_factory=dict)  # the first rejected row of each reason
    kept: int = 0
    fetch: dict[str, Any] = field(default_factory=dict)

    @property
    def best(self) -> Candidate:
        return self.candidates[0]

    @property
    def first(self) -> Record:
        return self.best.trial.kept[0]


def draft(
    paths: Sequence[Path], name: str | None = None, data: Path | None = None, seconds: float = SECONDS
) -> Draft:
    """Propose a spec for files of one dataset.

    Raises:
        UserError: no format reads them, or no row becomes a record.
    """
    gathered = gather(paths, data)
    called = name or spec_name(gathered.folder.name)
    if not re.fullmatch(NAME, gathered.folder.name):
        raise UserError(
            f"{gathered.folder}: expected a name of lower-case letters, digits, `_`, `-` and `.`; rename it"
        )
    if not re.fullmatch(NAME, called):
        raise UserError(
            f"name {called!r}: expected lower-case letters, digits, `_`, `-` and `.`; give another --name"
        )
    found = _candidates(gathered, called)
    if not found:
        raise UserError(_why_none(gathered))
    texts = [record.text for record in found[0].trial.kept[:200]]
    made = Draft(called, gathered, found, guess_language(texts))
    _count(made, seconds)
    return made


def _why_none(gathered: Gathered) -> str:
    """Tell why no row of any file becomes a record."""
    for path in gathered.paths:
        if told := packed(gathered.folder / path):
            return f"{gathered.folder / path}: {told}"
    one = next(iter(arranged(gathered)), None)
    if one and one.reading.format != "text":  # which reads any file
        return (
            f"{gathered.folder}: format {one.reading.format} reads {one.paths[0][0]}, but no field of its rows"
            " is like a text; name only files with texts, or write the spec by hand (docs/adding-a-dataset.md)"
        )
    return (
        f"{gathered.folder}: no format can read {', '.join(gathered.paths[:3])}; "
        "save the data as JSON Lines, one per line, or write the spec by hand (docs/adding-a-dataset.md)"
    )


def spec_name(called: str) -> str:
    """Convert the name of a folder or of a dataset on the hub to a name that a spec may have."""
    return re.sub(r"[^a-z0-9_.-]+", "_", called.lower()).strip("_.-")


def _candidates(gathered: Gathered, name: str) -> list[Candidate]:
    """Return guesses that make records, likeliest first. Skip those that can't be among the best `SHOWN`."""
    found: list[Candidate] = []
    for one in arranged(gathered)[:READINGS]:
        shared = shared_keys(name, gathered.folder.name, one)
        rows = _sample(one)
        contents = [row.content for _, row in rows]
        for guess in guesses(one.reading.format, contents) if rows else []:
            if len(found) >= SHOWN and one.reading.score * guess.score <= found[SHOWN - 1].score:
                break
            trial = tried(guess, shared, rows)
            if trial is not None:
                found = sorted([*found, Candidate(one, trial)], key=lambda candidate: -candidate.score)
    return found


def shared_keys(name: str, folder: str, arranged_as: Arranged) -> dict[str, Any]:
    """Return the keys of a spec that all guesses share."""
    return {
        "name": name,
        **({"dataset": folder} if folder != name else {}),
        "description": "draft",
        "language": "en",
        "licence": "not stated",
        "instruction": "draft",
        "format": arranged_as.reading.format,
        "options": arranged_as.reading.options,
        "files": arranged_as.files,
    }


def _sample(one: Arranged) -> Rows:
    """Draw rows at random from each entry, with an equal share of the sample for each."""
    share, drawn = max(40, SAMPLE // len(one.files)), random.Random(0)
    found: list[tuple[int, RawRow]] = []
    for place, paths in enumerate(one.paths):
        some = paths[:: max(1, len(paths) // FILES)]
        for path in some:
            rows = [row for row in one.rows(place, path, LOOKED_AT) if isinstance(row, RawRow)]
            chance = share / (len(rows) * len(some)) if rows else 0  # at random: files are often sorted by label
            some_rows = [row for row in rows if drawn.random() < chance] or rows[:1]
            found += [(place, row) for row in some_rows]
    return found


def _count(made: Draft, seconds: float) -> None:
    """Count the labels in all rows of the first candidate, or in those read before the time is over, and
    map these rows."""
    trial, rows = made.best.trial, _rows(made, time.monotonic() + seconds)
    labels = counted(trial.spec.task, trial.spec.map, (row.content for _, row in rows))
    files = [
        entry.model_copy(update={"labelled": place not in trial.unlabelled})
        for place, entry in enumerate(trial.spec.files)
    ]
    categories = Categories.model_validate(labels.categories())
    spec = trial.spec.model_copy(update={"categories": categories, "files": files})
    made.best.trial = whole = Trial(trial.guess, spec, labels)
    run(whole, [(place, row) for place, row in rows if files[place].labelled])
    made.kept = len(whole.kept)
    made.reasons.update(whole.reasons)
    made.firsts |= whole.firsts


def _rows(made: Draft, until: float) -> list[tuple[int, RawRow]]:
    """Read the rows of all files, from large ones only the first. Count unreadable rows by their reason."""
    one, found = made.best.arranged, list[tuple[int, RawRow]]()
    for place, paths in enumerate(one.paths):
        for path in paths:
            if time.monotonic() > until or len(found) >= sample.ALL:
                made.whole = False
                return found
            for row in one.rows(place, path, sample.ALL - len(found)):
                if isinstance(row, RawRow):
                    found.append((place, row))
                else:
                    made.reasons[row.reason] += 1
                    made.firsts.setdefault(row.reason, described(row))
            made.whole &= one.is_small(path)
    return found
