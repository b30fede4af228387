"""Writes a draft as YAML. Each guess has a comment that tells what it was inferred from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath

from pipelines.drafting.draft import Candidate, Draft
from pipelines.drafting.names import is_code, plain_name
from pipelines.drafting.second import second_corpus, second_of
from pipelines.drafting.yaml_text import comments, line, scalar
from pipelines.mapping.annotations.units import NAMES
from pipelines.report.visible import shortened, visible
from pipelines.sources import content_hash, reader
from pipelines.specs import file_options
from ubert.schema.checks import covered
from ubert.schema.record import Record, Task
from ubert.schema.specs.dataset import DatasetSpec
from ubert.schema.specs.mapping import unquoted

MIN_DIVIDED = 10  # rows from which a tenth can be for testing
SHOWN, REJECT = 60, 200  # maximum characters of a text, and of a description of a reject
_ASKED: dict[Task, str] = {
    "classification": "class of the text", "multilabel": "classes of the text", "pair": "relation of two texts",
    "choice": "choose the right answer", "regression": "score of the text", "ner": "named entities",
    "relation": "relations between entities", "event": "events and their arguments", "qa": "answer the question",
    "coref": "mentions of the same entity", "seq2seq": "write the text", "text": "running text",
}  # fmt: skip


def text_of(made: Draft) -> str:
    spec = made.best.trial.spec
    lines = [
        *_preface(made),
        f"name: {scalar(spec.name)}",
        *([f"dataset: {scalar(spec.dataset)}"] if spec.dataset else []),
        *_heading(made),
        *_files(made),
        *_map(made),
        *_categories(made),
        *_second(made),
        *_others(made),
    ]
    return "\n".join(lines) + "\n"


def _preface(made: Draft) -> Iterator[str]:
    yield "# Drafted by `ubert draft`: read each comment, correct what is wrong, and delete the comments."
    for reason in made.best.reasons:
        yield from comments(f"Reason: {reason}.")
    yield from comments(f"The first record: {summary(made.first)}")
    rejected = made.reasons.total()
    extent = "all rows" if made.whole else "the first rows; a rarer category may be missing"
    yield from comments(f"Counted in {extent}: {made.kept:,} records, {rejected:,} rejected.")
    for reason, count in made.reasons.most_common(5):
        first = shortened(made.firsts[reason], REJECT)
        yield from comments(f"Rejected: {count:,} ({reason}), first {first}")
    about = dict.fromkeys(
        made.gathered.about, "by its name it describes the data; to draft it, name it as an argument"
    )
    for path, why in {**about, **made.best.arranged.left_out}.items():
        yield from comments(f"Left out: {path}: {why}.")


def _heading(made: Draft) -> Iterator[str]:
    spec, (language, reason) = made.best.trial.spec, made.language
    yield from line(
        f"description: {scalar(_ASKED[spec.task].capitalize() + '.')}",
        "unknown: say what the texts are, who wrote them, and when",
    )
    why = "; ".join(made.best.trial.guess.reasons)
    yield from line(f"task: {spec.task}", f"guess: {why}")
    yield from line(f"language: {language}", f"guess: {reason}")
    beside = sorted(
        p.name for p in made.gathered.folder.glob("*") if p.name.lower().startswith(("licen", "copying"))
    )
    where = f"; see {beside[0]}" if beside else ""
    yield from line("licence: not stated", f"unknown: copy the publisher's words{where}")
    yield from line(
        f"instruction: {scalar(instruction(spec))}", "guess: the task in plain words, in the data's language"
    )
    if made.fetch:
        yield "fetch:"
        yield from line(f"  - {scalar(made.fetch)}", "`ubert fetch` prints the blake3 that pins it")
    yield from line(f"format: {spec.format}", f"guess: {made.best.arranged.reading.why}")
    if spec.options:
        yield "options:"
        yield from (f"  {scalar(key)}: {scalar(item)}" for key, item in spec.options.items())


def instruction(spec: DatasetSpec) -> str:
    """Guess the instruction: the name of the label's field, if it is descriptive."""
    field = unquoted(spec.map.label or "").rpartition(".")[2].replace("_", " ").lower()
    usual = {"label", "labels", "class", "category", "gold label", "target", "answer", "y", ""}
    if spec.task in ("classification", "multilabel") and field not in usual and not field[-1:].isdigit():
        return field
    names = {name.lower() for name in spec.categories.label.values()}
    if spec.task == "pair" and any("entail" in name for name in names):
        return "textual entailment"
    return _ASKED[spec.task]


def _files(made: Draft) -> Iterator[str]:
    spec, one = made.best.trial.spec, made.best.arranged
    yield "files:"
    for entry, paths, reason in zip(spec.files, one.paths, one.whys, strict=True):
        why = (
            f"guess: by {reason!r}" if reason and " " not in reason else reason or "unknown: its name has no split"
        )
        yield from line(f"  - split: {entry.split}", why)
        yield f"    path: {scalar(entry.path)}"
        if not made.fetch:  # only a sample of a hub dataset is on this disk
            form, options = reader(spec.format), file_options(spec, entry)
            beside = [name for path in paths for name in form.companions(one.folder, path, options)]
            yield f"    blake3: {scalar(content_hash(one.folder, sorted({*paths, *beside})))}"
        if entry.encoding != "utf-8":
            yield from line(f"    encoding: {entry.encoding}", "guess: the file is not UTF-8")
        if not entry.labelled:
            yield from line("    labelled: false", "guess: none of its rows has what `map` needs")
        if entry.options:
            yield f"    options: {scalar(entry.options)}"
    if not any(one.whys) and all(entry.split == "train" for entry in spec.files):
        yield from _test_split(made)


def _test_split(made: Draft) -> Iterator[str]:
    """Tell how to get a test split if no file has one: from a file of its own, or from a range of rows."""
    spec, rows = made.best.trial.spec, made.kept + made.reasons.total()
    entry, numbered = spec.files[0], spec.format in ("jsonl", "table")
    counted = made.whole and not spec.map.when  # rows that are left out are numbered, too
    if not numbered or len(made.gathered.paths) > 1 or not counted or rows < MIN_DIVIDED:
        test = PurePosixPath(entry.path).with_name(f"test{PurePosixPath(entry.path).suffix}")
        ranges = ", or divide the rows by the option `only`" if numbered else ""
        said = f"To measure a model, move some of the data into another file, such as {test}{ranges}."
        yield from comments(said, "  ")
        return
    at = rows - rows // 10
    encoding = {} if entry.encoding == "utf-8" else {"encoding": entry.encoding}
    test_entry = {"split": "test", "path": entry.path, **encoding, "options": {"only": [at, rows]}}
    yield "  # To measure a model, divide the rows. If they are sorted, shuffle the lines first. Add to this entry"
    yield f"  #   options: {scalar({'only': [0, at]})}"
    yield "  # and add a second entry:"
    yield f"  # - {scalar(test_entry)}"


def _map(made: Draft) -> Iterator[str]:
    yield "map:"
    for key, item in made.best.trial.guess.map.items():
        why = "guess: the strictest offsets that find nearly all mentions" if key == "offsets" else ""
        if key == "offsets" and item.get("unit") in ("utf16", "byte"):
            why += f"; characters fit fewer texts than {NAMES[item['unit']]}"
        yield from line(f"  {key}: {scalar(item)}", why)


def _categories(made: Draft) -> Iterator[str]:
    trial = made.best.trial
    given, counts = trial.labels.categories(), trial.labels
    if not given:
        return
    yield from line(
        "categories:", "source label: name in plain words, which the model reads; then how often it occurs"
    )
    for kind in ("label", "entity"):
        if kind in given:
            yield f"  {kind}:"
            yield from _named(given[kind], getattr(counts, kind), "    ")
    if "relation" in given:
        yield "  relation:"
    relations = given.get("relation", [])
    same = _same({relation["label"]: relation["name"] for relation in relations})
    for relation, remark in zip(relations, same, strict=True):
        count = _count(relation["name"], counts.relation[relation["label"]])
        yield from line(f"    - {scalar(relation)}", count + remark)
    for label, event in given.get("event", {}).items():
        if label == next(iter(given["event"])):
            yield "  event:"
        yield from line(f"    {scalar(label)}:", _count(event["name"], counts.event[label]))
        yield f"      name: {scalar(event['name'])}"
        if "roles" in event:
            yield "      roles:"
            yield from _named(event["roles"], counts.role[label], "        ")
    if "value" in given:
        low, high = min(counts.values), max(counts.values)
        yield from line(f"  value: {scalar(given['value'])}", f"guess: the numbers are from {low:g} to {high:g}")


def _named(names: dict[str, str], counts: Counter[str], indent: str) -> Iterator[str]:
    for (label, name), remark in zip(names.items(), _same(names), strict=True):
        yield from line(f"{indent}{scalar(label)}: {scalar(name)}", _count(name, counts[label]) + remark)


def _same(names: dict[str, str]) -> Iterator[str]:
    """Remark for each label whether its name is that of an earlier label, but for the spelling."""
    earlier: dict[str, str] = {}
    for label, name in names.items():
        first = earlier.setdefault(plain_name(name).casefold(), label)
        yield "" if first == label else f"; unknown: if it means the same as {scalar(first)}, give both one name"


def _count(name: str, count: int) -> str:
    return f"{count:,}" + ("; unknown: write it in plain words" if is_code(name) else "")


def _second(made: Draft) -> Iterator[str]:
    if second := second_of(made):
        yield from second_corpus(made.best.trial, second, instruction(second.spec))


def _others(made: Draft) -> Iterator[str]:
    """Describe the candidates after the first."""
    for number, candidate in enumerate(made.candidates[1:4], 2):
        if number == 2:
            yield "#"
            yield "# Other candidates, by how likely they are:"
        yield from outlined(candidate, number)


def outlined(candidate: Candidate, number: int) -> Iterator[str]:
    """Describe a candidate in comments: its task, format and map, the reasons for it, and its first record."""
    trial, reading = candidate.trial, candidate.arranged.reading
    options = f" {scalar(reading.options)}" if reading.options else ""
    yield from comments(f"{number}. {trial.spec.task}, {candidate.score:.2f}: format {reading.format}{options}")
    yield from comments(f"map: {scalar(trial.guess.map)}")
    yield from comments("reasons: " + "; ".join(candidate.reasons))
    yield from comments(f"first record: {summary(trial.kept[0])}")


def summary(record: Record) -> str:
    """Summarise a record on one line."""
    parts = [_short(record.text)]
    if record.pair is not None:
        parts.append(f"pair {_short(record.pair)}")
    parts += [f"label {record.categories[label].name}" for label in record.labels]
    if record.value is not None:
        parts.append(f"value {record.value:g}")
    if record.target is not None:
        parts.append(f"target {_short(record.target)}")
    for span in record.spans[:4]:
        kind = "" if span.category is None else f" ({record.categories[span.category].name})"
        parts.append(f"span {_short(covered(record, span))}{kind}")
    for relation in record.relations[:2]:
        ends = [_short(covered(record, record.spans[i])) for i in (relation.head, relation.tail)]
        parts.append(f"relation {ends[0]} {record.categories[relation.category].name} {ends[1]}")
    for event in record.events[:2]:
        roles = ", ".join(record.categories[argument.role].name for argument in event.arguments)
        parts.append(f"event {record.categories[event.category].name} ({roles})")
    return "; ".join(parts)


def _short(text: str) -> str:
    """Quote a text on one line, and shorten it."""
    flat = " ".join(visible(text).split())
    return f'"{flat}"' if len(flat) <= SHOWN else f'"{flat[: SHOWN - 1]}…"'
