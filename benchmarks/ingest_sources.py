"""Synthetic sources for the ingest benchmark, and their specs, deterministic for a number of records."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path

FILES = 4
WORDS = ["the", "a", "red", "old", "small", "stone", "bridge", "city", "river", "bank", "of", "in", "was", "built"]
NAMES = ["Anna", "Berg", "Carl", "Dorn", "Emil", "Falk", "Greta", "Holm", "Ida", "Jansen", "Karl", "Lind"]
LABELS = ["place", "trade", "travel", "food", "sport", "weather"]
SENTENCES = 5  # sentences per document
FOLDER = 1_000  # documents per folder

SPECS = {
    "topic": """
name: topic
description: Invented sentences and their topic.
task: classification
language: en
licence: CC0-1.0
instruction: topic of the sentence
format: jsonl
files: [{split: train, path: "*.jsonl"}]
map: {text: text, label: label}
categories:
  label: {place: a place, trade: trade, travel: a journey, food: food, sport: sport, weather: weather}
""",
    "names": """
name: names
description: Invented sentences and the names in them.
task: ner
language: en
licence: CC0-1.0
instruction: names
format: conll
options: {columns: [token, tag]}
files: [{split: train, path: "*.conll"}]
map: {tokens: token, tags: tag}
categories: {entity: {per: person, loc: place}}
""",
    "homes": """
name: homes
description: Invented documents, the names in them, and who lives where.
task: relation
language: en
licence: CC0-1.0
instruction: who lives where
format: brat
files: [{split: train, path: "*/*.txt"}]
map: {text: text, standoff: standoff}
categories:
  entity: {per: person, loc: place}
  relation: [{label: lives_in, name: lives in, head: per, tail: loc}]
""",
}


def write(folder: Path, name: str, records: int) -> None:
    """Write the source `name` and its spec."""
    specs, data = folder / "specs" / "datasets", folder / "data" / name
    specs.mkdir(parents=True, exist_ok=True)
    data.mkdir(parents=True)
    (specs / f"{name}.yaml").write_text(SPECS[name])
    draw = random.Random(records)
    _WRITERS[name](data, records, draw)


def _topic(data: Path, records: int, draw: random.Random) -> None:
    for number in range(FILES):
        with (data / f"{number}.jsonl").open("w") as file:
            for _ in range(records // FILES):
                row = {"text": " ".join(draw.choices(WORDS, k=20)), "label": draw.choice(LABELS)}
                file.write(json.dumps(row) + "\n")


def _names(data: Path, records: int, draw: random.Random) -> None:
    for number in range(FILES):
        with (data / f"{number}.conll").open("w") as file:
            for _ in range(records // FILES):
                file.write("".join(f"{token}\t{tag}\n" for token, tag in _sentence(draw)) + "\n")


def _homes(data: Path, records: int, draw: random.Random) -> None:
    for number in range(records):
        if number % FOLDER == 0:
            place = data / f"{number // FOLDER:04}"
            place.mkdir()
        text, annotations = _document(draw)
        (place / f"{number}.txt").write_text(text)
        (place / f"{number}.ann").write_text(annotations)


def _sentence(draw: random.Random) -> list[tuple[str, str]]:
    tokens = []
    for _ in range(draw.randint(8, 16)):
        if draw.random() < 0.15:
            label, length = draw.choice(["per", "loc"]), draw.randint(1, 2)
            tokens += [(draw.choice(NAMES), f"{'I' if i else 'B'}-{label}") for i in range(length)]
        else:
            tokens.append((draw.choice(WORDS), "O"))
    return tokens


def _document(draw: random.Random) -> tuple[str, str]:
    """Make sentences and their annotation lines; each person lives in the place that follows, if there is one."""
    lines: list[str] = []
    mentions: list[tuple[str, int, int]] = []
    for _ in range(SENTENCES):
        at = sum(len(line) + 1 for line in lines)
        tokens = _sentence(draw)
        lines.append(" ".join(token for token, _ in tokens))
        for token, tag in tokens:
            if tag.startswith("B-"):
                mentions.append((tag[2:], at, at + len(token)))
            elif tag.startswith("I-"):
                mentions[-1] = (*mentions[-1][:2], at + len(token))
            at += len(token) + 1
    text = "\n".join(lines) + "\n"
    found = [f"T{i}\t{kind} {start} {end}\t{text[start:end]}" for i, (kind, start, end) in enumerate(mentions, 1)]
    for i, pair in enumerate(pairwise(mentions), 1):
        if (pair[0][0], pair[1][0]) == ("per", "loc"):
            found.append(f"R{i}\tlives_in Arg1:T{i} Arg2:T{i + 1}")
    return text, "".join(line + "\n" for line in found)


_WRITERS = {"topic": _topic, "names": _names, "homes": _homes}
