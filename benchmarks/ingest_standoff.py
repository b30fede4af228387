"""Convert standoff files with Hugging Face `datasets`, in the two steps of public collections of such corpora.

A general loader reads all kinds of annotation into a dataset of documents, and `map` converts these to records.
The generator in `ingest_theirs.py` is specialised for its one corpus, and therefore faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

KINDS = {
    "T": "mentions",
    "R": "relations",
    "E": "events",
    "A": "attributes",
    "M": "attributes",
    "*": "equivalences",
}


def documents(paths: list[Path]) -> Iterator[dict[str, Any]]:
    """Yield each document with all its annotations."""
    for path in paths:
        found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in dict.fromkeys(KINDS.values())}
        for line in path.with_suffix(".ann").read_text(encoding="utf-8").splitlines():
            if line.strip() and line[0] in KINDS:
                found[KINDS[line[0]]].append(_annotation(line))
        yield {"document_id": path.stem, "text": path.read_text(encoding="utf-8"), **found}


def _annotation(line: str) -> dict[str, Any]:
    name, what, *words = line.split("\t")
    label, *rest = what.split(" ")
    if name.startswith("T"):
        fragments = [place.split(" ") for place in " ".join(rest).split(";")]
        offsets = [[int(start), int(end)] for start, end in fragments]
        return {"id": name, "type": label, "offsets": offsets, "text": words}
    if name.startswith("R"):
        (head_role, head), (tail_role, tail) = (part.split(":") for part in rest)
        ends = {"head": {"role": head_role, "ref_id": head}, "tail": {"role": tail_role, "ref_id": tail}}
        return {"id": name, "type": label, **ends}
    if name.startswith("E"):
        kind, _, trigger = label.partition(":")
        arguments = [dict(zip(("role", "ref_id"), part.split(":"), strict=True)) for part in rest]
        return {"id": name, "type": kind, "trigger": trigger, "arguments": arguments}
    if name.startswith("*"):
        return {"type": label, "ref_ids": rest}
    return {"id": name, "type": label, "ref_id": rest[0], "value": " ".join(rest[1:])}


def features() -> Any:
    """Return the features of the dataset of documents."""
    from datasets import Features, Value

    string, reference = Value("string"), {"role": Value("string"), "ref_id": Value("string")}
    named = {"id": string, "type": string}
    return Features(
        {
            "document_id": string,
            "text": string,
            "mentions": [{**named, "offsets": [[Value("int32")]], "text": [string]}],
            "relations": [{**named, "head": reference, "tail": reference}],
            "events": [{**named, "trigger": string, "arguments": [reference]}],
            "attributes": [{**named, "ref_id": string, "value": string}],
            "equivalences": [{"type": string, "ref_ids": [string]}],
        }
    )
