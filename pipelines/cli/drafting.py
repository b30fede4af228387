"""Commands that draft specs from data, and that try them."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli.shared import STORE, Data, Json, Root, Specs, Wide, app, console, say, write
from pipelines.report.render import show

if TYPE_CHECKING:
    from pipelines.drafting.draft import Draft
    from ubert.schema.specs.dataset import DatasetSpec


@app.command()
def draft(
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Name files or folders of one dataset, or hf://owner/name.", show_default=False),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name the dataset; default: the name of --out or folder.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the spec to this file; default: print it.")] = None,
    config: Annotated[str | None, typer.Option(help="Read this config of a dataset of the hub.")] = None,
    check: Annotated[
        str | None, typer.Option(metavar="NAME", help="Compare a spec's categories with those of its data.")
    ] = None,
    data: Data = None,
    root: Root = STORE,
    specs: Specs = None,
    as_json: Json = False,
    wide: Wide = False,
) -> None:
    """Draft a spec from data.

    It reads a sample of each file and proposes format, options, splits, map and task. Comments in the spec tell
    the reason for each guess, what could not be guessed, and the other candidates.

    Example: ubert draft raw/shop/train.csv raw/shop/test.csv --out corpus_specs/datasets/shop.yaml

    Example: ubert draft hf://owner/reviews --out corpus_specs/datasets/reviews.yaml

    Example: ubert draft --check shop --data raw
    """
    if check is not None:
        if files or out or name or config:
            raise typer.BadParameter(
                "--check takes only the name of a spec; leave out files, --name, --out and --config"
            )
        _check(check, data, root, specs, as_json=as_json, wide=wide)
        return
    if not files:
        raise typer.BadParameter("name the files of one dataset, or give --check and the name of a spec")
    if as_json:
        raise typer.BadParameter("--json is for --check; a draft is YAML")
    from pipelines.drafting.write import text_of

    made = _drafted(files, name or (out.stem if out else None), config, data, specs)
    text = text_of(made)
    if out is None:
        console.print(text, end="", markup=False, highlight=False, soft_wrap=True)
        return
    if name is not None and name != out.stem:
        raise typer.BadParameter(f"--name {name}: a spec has the name of its file, {out.stem}; leave out --name")
    if out.exists():
        raise typer.BadParameter(f"{out}: exists already; choose another file, or delete it")
    with suppress(OSError):  # then `write` reports an error
        out.parent.mkdir(parents=True, exist_ok=True)
    editor = "# yaml-language-server: $schema=../schemas/dataset.json\n"
    write(out, editor + text if (out.parent / "../schemas/dataset.json").exists() else text)
    _print_candidates(made)
    where = "" if made.fetch else f" --data {shlex.quote(str(made.gathered.folder.parent))}"
    say(f"wrote {out}: read its comments, {_how_to_ingest(out, where, specs)}")


def _how_to_ingest(out: Path, where: str, specs: Path | None) -> str:
    """Describe the next steps. `ubert ingest` finds a spec only as datasets/NAME.yaml in the folder of specs."""
    from pipelines.specs import SPECS

    inside = out.absolute().parent.name == "datasets"
    folder = Path(os.path.normpath(out.parent / "..")) if inside else specs or SPECS
    move = "" if inside and out.suffix == ".yaml" else f"move it to {folder / 'datasets' / out.stem}.yaml, "
    option = "" if folder == SPECS else f" --specs {shlex.quote(str(folder))}"
    return f"{move}then run `ubert ingest {out.stem}{where}{option}`"


def _drafted(
    files: list[str], name: str | None, config: str | None, data: Path | None, specs: Path | None
) -> Draft:
    from pipelines.drafting.draft import draft as job

    if any(file.startswith("hf:") for file in files):
        from pipelines.drafting.hub import drafted
        from pipelines.specs import specs_folder

        if len(files) > 1:
            raise typer.BadParameter(
                f"expected one dataset of the hub, got {len(files)} names; run the command for each"
            )
        return drafted(files[0], config, name, specs_folder(specs))
    if config is not None:
        raise typer.BadParameter("--config is for datasets of the hub (hf://owner/name); leave it out")
    return job([Path(file) for file in files], name, data)


def _print_candidates(made: Draft) -> None:
    """Print the candidates, each with its reasons and its first record."""
    from pipelines.drafting.write import summary

    for number, candidate in enumerate(made.candidates[:4], 1):
        task, form = candidate.trial.spec.task, candidate.arranged.reading.format
        say(f"{number}. {task} ({form}), {candidate.score:.2f}", style="bold")
        for line in ("; ".join(candidate.reasons), summary(candidate.trial.kept[0])):
            say(f"   {line}")


def _check(name: str, data: Path | None, root: Root, specs: Path | None, *, as_json: bool, wide: bool) -> None:
    import pyarrow as pa

    from pipelines.drafting.check import differences

    spec, folder = _spec_and_folder(name, data, root, specs)
    found, rows = differences(spec, folder)
    if not found:
        say(f"{name}: spec and data have the same categories ({rows:,} rows)", as_json=as_json)
    sides = {"spec": "the spec lacks it", "data": "the data lacks it"}
    if found or as_json:
        differing = [
            {"kind": one.kind, "label": one.label, "difference": sides[one.lacking], "occurs": one.occurs}
            for one in found
        ]
        show(pa.Table.from_pylist(differing), as_json=as_json, wide=wide)


def _spec_and_folder(name: str, data: Path | None, root: Root, specs: Path | None) -> tuple[DatasetSpec, Path]:
    from pipelines.ingest.source_files import source_folder
    from pipelines.mirror import mirror_folder
    from pipelines.specs import dataset_spec, specs_folder
    from pipelines.store.storage import on_disk

    folder = specs_folder(specs)
    spec = dataset_spec(name, folder)
    return spec, source_folder(spec, mirror_folder(data, on_disk(root)), folder)


@app.command("try")
def try_(
    name: Annotated[str, typer.Argument(help="Name a spec.")],
    n: Annotated[int, typer.Option("-n", min=1, help="Show this many rows.")] = 5,
    data: Data = None,
    root: Root = STORE,
    specs: Specs = None,
    as_json: Json = False,
    wide: Wide = False,
) -> None:
    """Show the records and rejects that a spec produces.

    It maps the first rows of each file, without Ray and without the store, and counts their categories. --json
    prints only the counts.

    Example: ubert try trec -n 3 --data ../mirror
    """
    import pyarrow as pa

    from pipelines.drafting.preview import preview
    from pipelines.report.described import described
    from pipelines.report.visible import shortened
    from pipelines.sources.places import reject_place
    from ubert.schema.record import Reject

    spec, folder = _spec_and_folder(name, data, root, specs)
    found = preview(spec, folder, n)
    for raw, row in () if as_json else found.first:
        say(shortened(raw, 1000), style="dim")
        if isinstance(row, Reject):
            place, detail = reject_place(row.path, row.line, row.detail)
            say(f"rejected: {place}: {row.reason}: {detail}\n", style="red")
        else:
            console.print(described(row), soft_wrap=True)
    counts = [{"kind": kind, "category": named, "count": n} for (kind, named), n in found.categories.most_common()]
    rejected = [{"reason": reason, "count": n} for reason, n in found.reasons.most_common()]
    tables = {"categories": counts, "rejects": rejected}
    show(
        {title: pa.Table.from_pylist(rows) for title, rows in tables.items() if rows or as_json},
        as_json=as_json,
        wide=wide,
    )
    total = found.kept + found.reasons.total()
    say(f"{name}: {found.kept:,} of the first {total:,} rows become records", as_json=as_json)
