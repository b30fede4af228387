"""Write the page of datasets: `python -m pipelines.pages.catalogue --root store --out docs/datasets.md`.

It reads only the store and the specs, and ingests nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines.cli.shared import STORE, Root, Specs, with_plain_errors, write
from pipelines.pages.examples import WORDS, drawn, left_out, one_of_each, plain
from pipelines.pages.markdown import markdown_table
from pipelines.report.visible import shortened
from pipelines.specs import dataset_names, dataset_spec, specs_folder
from pipelines.store.storage import StorePath
from pipelines.store.warehouse import sql
from ubert.schema.errors import UserError
from ubert.schema.record import SPLITS, TASKS, Record
from ubert.schema.specs.dataset import DatasetSpec

_CORPORA = "SELECT corpus, split, source_records, kept, rejected FROM corpora"
_REJECTS = "SELECT corpus, split, reason, count(*) AS rows FROM rejects GROUP BY ALL ORDER BY rows DESC, reason"
_MISMATCHES = """
SELECT corpus, kind, count(*) AS mentions, count(found) AS placed FROM mismatches GROUP BY ALL
ORDER BY mentions DESC, kind
"""
_HEAD = """# Datasets

This page lists all datasets that have a spec in `corpus_specs/datasets/`. `make datasets` writes it from the
specs and the store. Click on the head of a column to sort by it.

- **records**: all kept records of all splits; [the counts](#counts) of each split are below.
- **categories**: the names that the model reads. *Of each record*: the record brings its own, such as the
  answers of a multiple-choice question.
- **example**: at most 80 characters around an annotation. It is left out if the publisher's licence does not
  clearly permit redistribution (*licence*), and for abuse datasets (*abusive language*).

"""
_COUNTS = """## Counts

- **kept** (by split) and **rejected** (by reason): source records = kept + rejected, for every file.
  *Unlabelled*: the split was published without labels. `ubert rejects NAME` shows the rows.
- **mismatched mentions**: annotations whose words are not at their offsets, or that have no offsets and whose
  words occur in the text several times or never. *Placed*: the spec's `locate` found a place for them; the
  others are in rejected records. SQL shows each: `SELECT * FROM mismatches WHERE corpus = 'NAME'`.

"""
_COLUMNS = ("dataset", "spec", "task", "language", "licence class", "records", "categories", "example")
_COUNT_COLUMNS = ("spec", "licence", *SPLITS, "rejected", "mismatched mentions")
_NAMES = 6  # number of categories that are listed by name

Rows = list[dict[str, Any]]


def markdown(root: StorePath, specs: Path) -> str:
    """Return the page. The same store and specs give the same text.

    Raises:
        UserError: the store has no corpus of these specs, or a spec is wrong.
    """
    corpora, rejects, mismatches = (
        _by_corpus(sql(root, query).to_pylist()) for query in (_CORPORA, _REJECTS, _MISMATCHES)
    )
    every = [dataset_spec(name, specs) for name in dataset_names(specs)]
    found = sorted((spec for spec in every if spec.name in corpora), key=lambda spec: (spec.folder, spec.name))
    if not found:
        raise UserError(f"{root}: no corpus of these specs here; make one with `ubert ingest NAME --root {root}`")
    records = one_of_each(root, [spec.name for spec in found])
    rows = [_row(spec, corpora[spec.name], records.get(spec.name)) for spec in found]
    counts = [_counts(spec, corpora[spec.name], rejects[spec.name], mismatches[spec.name]) for spec in found]
    absent = [spec.name for spec in every if spec.name not in corpora]
    parts = [
        _HEAD + markdown_table(_COLUMNS, rows),
        _COUNTS + markdown_table(_COUNT_COLUMNS, counts),
        "## Totals\n\nA text that several specs describe counts in each of them.\n\n" + _totals(found, corpora),
    ]
    if absent:
        parts.append(f"Without a corpus in this store, and so not in the tables: {', '.join(absent)}.\n")
    return "\n".join(parts)


def _by_corpus(rows: Rows) -> dict[str, Rows]:
    found: dict[str, Rows] = defaultdict(list)
    for row in rows:
        found[row["corpus"]].append(row)
    return found


def _row(spec: DatasetSpec, splits: Rows, record: Record | None) -> list[str]:
    reason = left_out(spec)
    return [
        spec.folder,
        spec.name,
        spec.task,
        spec.language,
        spec.licence_class or "",
        f"{sum(row['kept'] for row in splits):,}",
        _categories(spec, record) if record else "",
        f"*{reason}*" if reason else drawn(record) if record else "",
    ]


def _categories(spec: DatasetSpec, record: Record) -> str:
    """Return the number of categories, and the names of the first ones."""
    if spec.map.candidates is not None or spec.task in ("choice", "qa"):
        return "of each record"
    names = list(dict.fromkeys(category.name for category in record.categories))
    more = ["…"] if len(names) > _NAMES else []
    shown = ", ".join([*(plain(shortened(name, WORDS)) for name in names[:_NAMES]), *more])
    return f"{len(names)}: {shown}" if names else ""


def _counts(spec: DatasetSpec, splits: Rows, rejects: Rows, mismatches: Rows) -> list[str]:
    kept = Counter({row["split"]: row["kept"] for row in splits})
    labelled = {files.split for files in spec.files if files.labelled}
    reasons: Counter[str] = Counter()
    for row in rejects:
        reasons[row["reason"] + ("" if row["split"] in labelled else " (unlabelled)")] += row["rows"]
    misplaced = [f"{row['kind']} {row['mentions']:,} ({row['placed']:,} placed)" for row in mismatches]
    return [
        spec.name,
        spec.licence,
        *(f"{kept[split]:,}" if split in kept else "" for split in SPLITS),
        ", ".join(f"{reason} {rows:,}" for reason, rows in reasons.most_common()),
        ", ".join(misplaced),
    ]


def _totals(specs: Sequence[DatasetSpec], corpora: dict[str, Rows]) -> str:
    """Return a table of sums by task, by language, and over all."""
    languages = sorted({spec.language for spec in specs})
    groups = [
        *((task, [spec for spec in specs if spec.task == task]) for task in TASKS),
        *((language, [spec for spec in specs if spec.language == language]) for language in languages),
        ("all", specs),
    ]
    rows = []
    for name, chosen in groups:
        splits = [row for spec in chosen for row in corpora[spec.name]]
        counts = (sum(row[key] for row in splits) for key in ("source_records", "kept", "rejected"))
        sizes = (len({spec.folder for spec in chosen}), len(chosen), *counts)
        if chosen:
            rows.append([name, *(f"{size:,}" for size in sizes)])
    return markdown_table(("", "datasets", "specs", "source records", "kept", "rejected"), rows)


def main(
    root: Root = STORE,
    specs: Specs = None,
    out: Annotated[Path | None, typer.Option(help="Write to this file, instead of printing.")] = None,
) -> None:
    """Write the page of datasets as Markdown.

    Example: python -m pipelines.pages.catalogue --root store --out docs/datasets.md
    """
    page = markdown(root, specs_folder(specs))
    if out is None:
        typer.echo(page, nl=False)
    else:
        write(out, page)


if __name__ == "__main__":
    with_plain_errors(lambda: typer.run(main))
