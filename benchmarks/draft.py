"""Drafted specs against committed ones: `pipelines.drafting` over the datasets of the mirror.

Ours is the spec that `ubert draft` writes, given only the files that committed specs read. Theirs is the committed
spec, written by hand. A case is one set of files, whatever tasks the committed specs make of it. A part of a draft
is right if it agrees with any of these specs over a sample of rows:

    ingests   readers and mapper refuse no more rows than the spec's `error_budget`
    format    the format is the same, or one that gives the same rows
    splits    each file has its split
    text      texts (and second texts) are equal, record by record
    labels    task and annotations are equal, but for the names of categories, which must correspond one to one or
              many to one. A relation without a label in the data may have its head and tail the other way round:
              its name, which the spec makes up, tells the direction

Some differences are choices that the data does not decide. Their causes begin with "choice": the spec tests on a
file that no name calls a test, trains on the only development file, divides a file, or puts the second text first.
They count as wrong, except in the cases that say "choices aside".

Each dataset has the same weight: the share of its cases that are right. The benchmark runs without Ray, and reads
all rows of a file.

Each case is printed to stderr as soon as it is measured, with the causes of what isn't right.

    python benchmarks/draft.py [--quick] [--data DIR] [--only NAME...]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from measure import report

from pipelines.drafting.draft import Draft, draft
from pipelines.drafting.formats.files import split_of
from pipelines.drafting.trial import Trial
from pipelines.mapping.mapper import mapper
from pipelines.sources import END, RawRow, Slice, matches, reader
from pipelines.specs import dataset_names, dataset_spec, file_options, specs_folder
from ubert.schema.errors import UserError
from ubert.schema.record import Record
from ubert.schema.specs.dataset import DatasetSpec

PARTS = ("ingests", "format", "splits", "text", "labels")
CHOICE = "choice: "  # begins a cause that the data does not decide
FILES, ROWS = 40, 300  # compared files per entry, and rows per file
ALIKE = {"jsonl", "json_stream", "json"}  # interchangeable if the rows are the same
Key = tuple[str, str]  # path, and location within the file


class Result(NamedTuple):
    """Why parts of a draft are wrong. `among`: with one of the next candidates, all are right."""

    dataset: str
    specs: list[str]
    among: bool
    causes: dict[str, str]

    def all_right(self, parts: Collection[str] = PARTS, choices: bool = False) -> bool:
        """Tell whether these parts are right, or differ by choice only."""
        wrong = (cause for part, cause in self.causes.items() if part in parts)
        return all(choices and cause.startswith(CHOICE) for cause in wrong)


def main() -> None:
    """Draft, compare, and print one JSON object per line."""
    given = _arguments()
    folder = specs_folder(None)
    cases = _cases(folder, given.data, given.only)
    started, results = time.monotonic(), []
    chosen = list(cases.items())[: 12 if given.quick else None]
    for number, (files, specs) in enumerate(chosen, 1):
        results.append(_case(given.data, files, specs))
        line: dict[str, Any] = {"number": number, "of": len(chosen), "seconds": round(time.monotonic() - started)}
        line |= {"case": results[-1].specs, "causes": results[-1].causes}
        print(json.dumps(line, ensure_ascii=False), file=sys.stderr, flush=True)
    _report(results, time.monotonic() - started)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(os.environ.get("UBERT_DATA", "../shared/data"))
    parser.add_argument("--data", type=Path, default=default, help="the mirror")
    parser.add_argument("--only", nargs="*", help="datasets (folders of the mirror)")
    parser.add_argument("--quick", action="store_true", help="a dozen cases")
    return parser.parse_args()


def _cases(folder: Path, data: Path, only: list[str] | None) -> dict[frozenset[str], list[DatasetSpec]]:
    """Group specs by the files that they read."""
    cases: defaultdict[frozenset[str], list[DatasetSpec]] = defaultdict(list)
    for name in dataset_names(folder):
        spec = dataset_spec(name, folder)
        if (data / spec.folder).is_dir() and (not only or spec.folder in only):
            cases[frozenset(_files(spec, data / spec.folder))].append(spec)
    return cases


def _files(spec: DatasetSpec, folder: Path) -> Iterator[str]:
    """Yield the files that a user would pass: those of the spec, and their companions."""
    for entry in spec.files:
        options = file_options(spec, entry)
        for path in matches(folder, entry.path):
            beside = reader(spec.format).companions(folder, path, options)
            yield from (str(folder / each) for each in (path, *beside))


def _case(data: Path, files: frozenset[str], specs: list[DatasetSpec]) -> Result:
    dataset, names = specs[0].folder, [spec.name for spec in specs]
    try:
        made = draft([Path(file) for file in sorted(files)], data=data)
    except UserError as error:
        causes = dict.fromkeys(PARTS, f"no draft: {error}"[:200])
        return Result(dataset, names, False, causes)
    theirs = [(spec, dict(_records(spec, data / spec.folder))) for spec in specs]
    compared = [_compared(made, made.best.trial, *both, data) for both in theirs]
    best = min(compared, key=lambda causes: sum(map(bool, causes.values())))
    among = any(
        not any(_compared(made, candidate.trial, *both, data).values())
        for candidate in (made.candidates[1:4] if any(best.values()) else [])
        for both in theirs
    )
    return Result(dataset, names, among, {part: cause for part, cause in best.items() if cause})


def _compared(
    made: Draft, trial: Trial, spec: DatasetSpec, theirs: dict[Key, Record], data: Path
) -> dict[str, str]:
    """Map each part to the reason why it is wrong, or to an empty string."""
    drafted, folder = trial.spec, data / spec.folder
    ours = dict(_records(drafted, folder))
    shared = [key for key in theirs if key in ours]
    same = drafted.format == spec.format or ({drafted.format, spec.format} <= ALIKE and made.kept > 0)
    same = same or (len(theirs) > 0 and len(shared) >= 0.99 * len(theirs))
    problems = dict.fromkeys(PARTS, "")
    refused = sum(made.reasons.values())
    if trial is made.best.trial and refused > spec.error_budget * (made.kept + refused):
        [(reason, _)] = made.reasons.most_common(1)
        problems["ingests"] = f"refused {refused} of {made.kept + refused}: {reason}"
    if not same:
        problems["format"] = f"{drafted.format} for {spec.format}"
    problems["splits"] = _splits(drafted, spec, folder)
    problems["text"], problems["labels"] = _content(drafted, spec, ours, theirs, shared)
    return problems


def _splits(drafted: DatasetSpec, spec: DatasetSpec, folder: Path) -> str:
    def of(one: DatasetSpec) -> set[tuple[str, str]]:
        brat = one.format == "brat"  # a document's path may be that of its text or of its annotations
        named = ((Path(path), entry.split) for entry in one.files for path in matches(folder, entry.path))
        there = ((p, s) for p, s in named if not brat or (folder / p).with_suffix(".txt").exists())
        return {(str(path.with_suffix("") if brat else path), split) for path, split in there}

    ours, theirs = of(drafted), of(spec)
    missing = sorted(theirs - ours)
    if not missing:
        return ""
    splits = {split for _, split in ours}
    choices = [_chosen(path, split, dict(ours), splits, spec) for path, split in missing]
    return choices[0] if all(choices) else f"{missing[0][0]} is {missing[0][1]}"


def _chosen(path: str, split: str, ours: dict[str, str], splits: set[str], spec: DatasetSpec) -> str:
    """Return the choice by which a spec gives a file another split than its name says, or an empty string."""
    if path not in ours:
        return ""
    entries = [entry for entry in spec.files if entry.path == path]
    if len(entries) > 1:  # by the number of documents, or by something that the data says
        return f"{CHOICE}the spec divides a file" if all("documents" in entry.options for entry in entries) else ""
    if not split_of(path)[1]:
        return f"{CHOICE}no name says that a file is {split}"
    alone = split == "train" and "train" not in splits
    return f"{CHOICE}the spec trains on a file that is called {ours[path]}" if alone else ""


def _records(spec: DatasetSpec, folder: Path) -> Iterator[tuple[Key, Record]]:
    """Yield the first records of each file with their location, whatever their split."""
    for entry in spec.files:
        to_record, options = mapper(spec, entry.split), file_options(spec, entry)
        for path in matches(folder, entry.path)[:FILES]:
            piece = Slice(str(folder), path, 0, END, 1, entry.encoding, "0" * 64)
            try:
                for row in islice(reader(spec.format).read(piece, options), ROWS):
                    record = to_record(piece, row) if isinstance(row, RawRow) else row
                    if isinstance(record, Record) and isinstance(row, RawRow):
                        name = str(Path(path).with_suffix("")) if spec.format == "brat" else path
                        yield (name, row.locator.removeprefix(path)), record
            except UserError:
                continue


def _content(
    drafted: DatasetSpec, spec: DatasetSpec, ours: dict[Key, Record], theirs: dict[Key, Record], shared: list[Key]
) -> tuple[str, str]:
    if len(shared) < min(30, len(theirs)):  # locations differ: compare in the order of the files
        shared = []
        pairs = list(zip(ours.values(), theirs.values(), strict=False)) if len(ours) == len(theirs) else []
    else:
        pairs = [(ours[key], theirs[key]) for key in shared]
    if not pairs:
        return "other rows", "other rows"
    wrong = [(a, b) for a, b in pairs if (a.text, a.pair) != (b.text, b.pair)]
    text = ""
    if len(wrong) > 0.01 * len(pairs):
        (_a, _b), *_ = wrong
        if all((a.text, a.pair) == (b.pair, b.text) for a, b in wrong):
            return f"{CHOICE}the second text comes first", _labels(pairs) if drafted.task == spec.task else "task"
        said = [f"{one.map.text or one.map.tokens} + {one.map.pair}" for one in (drafted, spec)]
        text = " is not ".join(said)
    if drafted.task != spec.task:
        return text, f"{drafted.task} for {spec.task}"
    unnamed = spec.map.relations is not None and all(one.constant for one in spec.map.relations)
    apart = _labels(pairs)
    return text, _labels(pairs, turned=True) if apart and unnamed else apart


def _labels(pairs: list[tuple[Record, Record]], turned: bool = False) -> str:
    """Return why annotations don't correspond: each of our categories must map to one of theirs. `turned` reads
    our relations from tail to head."""
    meant: defaultdict[Any, Counter[Any]] = defaultdict(Counter)
    apart = 0
    for ours, theirs in pairs:
        mine, other = _annotations(ours, turned), _annotations(theirs)
        if mine.keys() != other.keys():
            apart += 1
            continue
        for place, kinds in mine.items():
            if len(kinds) != len(other[place]):
                apart += 1
                break
            if len(kinds) == 1:
                meant[kinds[0]][other[place][0]] += 1
    if apart > 0.02 * len(pairs):
        return f"other annotations in {apart} of {len(pairs)} records"
    several = [kind for kind, names in meant.items() if names.most_common(1)[0][1] < 0.98 * names.total()]
    if several and len(several) > 0.1 * len(meant):
        return f"{several[0]!r} is {list(meant[several[0]])[:3]}"
    return ""


def _annotations(record: Record, turned: bool = False) -> dict[Any, list[Any]]:
    """Group categories by the location of their annotation."""

    def name(i: int | None) -> str | None:
        return None if i is None else record.categories[i].name

    found: defaultdict[Any, list[Any]] = defaultdict(list)
    found["labels"] = sorted(str(name(label)) for label in record.labels)
    found["value"] = [] if record.value is None else [str(round(record.value, 4))]
    found["target"] = [] if record.target is None else [record.target]
    places = [(span.start, span.end) for span in record.spans]
    if record.task in ("ner", "qa"):
        for span in record.spans:
            found[span.start, span.end].append(None if record.task == "qa" else name(span.category))
    elif record.task == "coref":
        for span in record.spans:
            found[span.start, span.end].append("mention")
        for first, second in pairwise(
            sorted(record.spans, key=lambda span: (span.group or 0, span.start, span.end))
        ):
            if first.group is not None and first.group == second.group:
                found["together", (first.start, first.end), (second.start, second.end)].append("mention")
    for relation in record.relations:
        ends = (places[relation.head], places[relation.tail])
        found["relation", *(ends[::-1] if turned else ends)].append(name(relation.category))
    for event in record.events:
        at = None if event.trigger is None else places[event.trigger]
        found["event", at].append(name(event.category))
        found["arguments", at] += sorted(str(name(argument.role)) for argument in event.arguments)
    return {place: sorted(map(str, kinds)) for place, kinds in found.items() if kinds}


def _report(results: list[Result], seconds: float) -> None:
    """Print shares of datasets, each the mean over its cases."""
    by_dataset: defaultdict[str, list[Result]] = defaultdict(list)
    for result in results:
        by_dataset[result.dataset].append(result)
    size = len(by_dataset)
    cases = {part: _mean(by_dataset, lambda r, part=part: part not in r.causes) for part in PARTS}  # type: ignore[misc]
    right = ("format", "splits", "text", "labels")
    cases["all but ingests"] = _mean(by_dataset, lambda r: r.all_right(right))
    cases["all but ingests, choices aside"] = _mean(by_dataset, lambda r: r.all_right(right, choices=True))
    cases["all"] = _mean(by_dataset, lambda r: r.all_right())
    cases["all, choices aside"] = _mean(by_dataset, lambda r: r.all_right(choices=True))
    cases["all, or among the next three candidates"] = _mean(by_dataset, lambda r: r.all_right() or r.among)
    for case, found in cases.items():
        report("draft", case, found, 1.0, "share of datasets", size, more=True, digits=3)
    causes = Counter((part, _kind(cause)) for r in results for part, cause in r.causes.items())
    for (part, cause), count in causes.most_common(25):
        print(json.dumps({"benchmark": "draft", "case": f"{part}: {cause}", "ours": count, "unit": "cases"}))
    print(json.dumps({"benchmark": "draft", "case": "seconds", "ours": round(seconds, 1), "n": len(results)}))


def _mean(by_dataset: dict[str, list[Result]], good: Callable[[Result], bool]) -> float:
    """Return the mean over datasets of the share of their cases that are good."""
    shares = [sum(map(good, some)) / len(some) for some in by_dataset.values()]
    return sum(shares) / len(shares)


def _kind(cause: str) -> str:
    """Strip the dataset-specific details from a cause, to group causes."""
    if cause.startswith(CHOICE):
        return cause
    if " is " in cause:
        return (
            cause.rpartition(" is ")[0].split("/")[-1][-25:] + " is ..." if cause.startswith("'") else cause[-40:]
        )
    return cause.split(" in ")[0].split(": ")[-1][:60]


if __name__ == "__main__":
    main()
