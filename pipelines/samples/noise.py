"""Add annotation errors (wrong labels, missing or shifted mentions), and record the correct annotations."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.samples import entailment, reviews
from pipelines.samples.grammar import read
from pipelines.samples.scene import Scene

TRUTH = "truth.jsonl"  # in the folder of a dataset; one line for each record that was changed
Tagged = list[tuple[str, str]]


class Planted(NamedTuple):
    """An error. `number` is the record's index in the training split. `said` and `true` are the wrong and the
    correct annotation: a label, or the words and type of a mention. None means no mention."""

    number: int
    text: str
    kind: str
    said: str | None
    true: str | None


Changed = tuple[Any, str, str, str | None, str | None]  # the record, its text, and the rest of `Planted`


def with_noise(
    stream: Iterator[Any], name: str, seed: int, noise: float, folder: Path
) -> Generator[Any, None, None]:
    """Yield the records of a training split, a share `noise` of them with an error. The error depends only on the
    seed, the dataset and the record's index."""
    change = CHANGES.get(name)
    if change is None:
        yield from stream
        return
    with (folder / TRUTH).open("w", encoding="utf-8", newline="\n") as file:
        for number, record in enumerate(stream):
            scene = Scene(seed, f"noise/{name}", "train", number)
            changed = change(record, scene) if scene.draw(1_000_000) < noise * 1_000_000 else None
            if changed is not None:
                record, text, kind, said, true = changed
                planted = Planted(number, text, kind, said, true)
                file.write(json.dumps(planted._asdict(), ensure_ascii=False) + "\n")
            yield record


def _review(record: dict[str, Any], scene: Scene) -> Changed:
    true, said = record["label"], _other(record["label"], reviews.LABELS, scene)
    return {**record, "label": said}, record["text"], "wrong label", said, true


def _row(labels: tuple[str, ...], text: int) -> Callable[[tuple[str, ...], Scene], Changed]:
    """Return a function that changes the label of a row. The label is the last column, and `text` the text's
    column."""

    def change(record: tuple[str, ...], scene: Scene) -> Changed:
        true, said = record[-1], _other(record[-1], labels, scene)
        return (*record[:-1], said), record[text], "wrong label", said, true

    return change


def _other(label: str, labels: tuple[str, ...], scene: Scene) -> str:
    return scene.pick([other for other in labels if other != label])


def _entities(record: Tagged, scene: Scene) -> Changed | None:
    """Remove one mention, or move its end by a token. Return None if there is no mention."""
    starts = [i for i, (_, tag) in enumerate(record) if tag.startswith("B-")]
    if not starts:
        return None
    start = scene.pick(starts)
    end = next((i for i in range(start + 1, len(record)) if not record[i][1].startswith("I-")), len(record))
    kind = record[start][1][2:]
    stops = [stop for stop in (end - 1, end + 1) if start < stop <= len(record)]
    stops = [stop for stop in stops if all(tag == "O" for _, tag in record[end:stop])]
    stop = scene.pick(stops) if stops and scene.draw(2) else start
    tags = [f"{'I' if i else 'B'}-{kind}" for i in range(stop - start)] + ["O"] * max(0, end - stop)
    changed = [*record]
    changed[start : start + len(tags)] = [
        (token, tag) for (token, _), tag in zip(record[start : start + len(tags)], tags, strict=True)
    ]
    said = None if stop == start else f"{_words(record[start:stop])} [{kind}]"
    true = f"{_words(record[start:end])} [{kind}]"
    return changed, _words(record), "missed" if said is None else "shifted", said, true


def _words(tokens: Tagged) -> str:
    return " ".join(token for token, _ in tokens)


CHANGES: dict[str, Callable[[Any, Scene], Changed | None]] = {
    "sample_reviews": _review,
    "sample_topics": _row(tuple(topic for topic in read("topics") if topic != "shared"), 1),
    "sample_entailment": _row(entailment.LABELS, 1),
    "sample_entities": _entities,
}
