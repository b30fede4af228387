"""Write the report of a store as one HTML page: numbers, plots and a few records of each corpus.

The page needs no network.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from pipelines.progress import progress
from pipelines.report.affinities import matrices
from pipelines.report.numbers import STEPS, Row, numbers, records
from pipelines.report.pictures import bars, histogram, ranges
from pipelines.report.records import shown
from pipelines.report.stats import EMPTY
from pipelines.report.visible import count, shortened, visible
from pipelines.store.storage import StorePath
from pipelines.store.store import Store
from pipelines.store.warehouse import connect
from ubert.schema.errors import UserError
from ubert.schema.record import Record

RECORDS = 3  # records of each corpus that are shown
SPLITS = ("train", "validation", "test")
MEASURES = {
    "characters": "characters of a text",
    "labels": "labels of a record",
    "spans": "mentions of a record",
    "density": "mentions per 100 characters",
    "span length": "characters of a mention",
    "relations": "relations of a record",
    "events": "events of a record",
}
KINDS = ("label", "answer", "span", "relation", "event", "role")


def html(root: StorePath) -> str:
    """Return the page. The same store gives the same page, because its time is that of the newest manifest.

    Raises:
        UserError: the store has no corpus, or can't be read.
    """
    with connect(root) as connection:
        found = numbers(connection)
        if not found["corpora"]:
            raise UserError(f"{root}: {EMPTY}")
        drawn = records(connection, RECORDS)
    return _template().render(_content(root, found, drawn))


def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("pipelines.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(visible=visible, shortened=shortened, count=count, digest=_digest)
    return environment.get_template("report.html.jinja")


def _content(root: StorePath, found: dict[str, list[Row]], drawn: dict[str, list[Record]]) -> dict[str, Any]:
    corpora, measures = found["corpora"], _measures(found)
    return {
        "root": str(root),
        "created": _newest(Store(root)),
        "splits": SPLITS,
        "measures": MEASURES,
        "totals": _totals(found),
        "corpora": corpora,
        "counts": _picture(corpora, "corpus"),
        "groups": {
            aspect: {"rows": rows, "picture": _picture(rows, "name")}
            for aspect, rows in _grouped(found["groups"], "aspect").items()
        },
        "lengths": _lengths(found["measures"]) if found["measures"] else "",
        "rejects": found["rejects"],
        "mismatches": found["mismatches"],
        "matches": _grouped(found["matches"], "what"),
        "suspects": _grouped(found["suspects"], "corpus"),
        "affinities": matrices(found["affinity"]),
        "mixtures": {
            name: {"rows": rows, "picture": _drawn(rows)}
            for name, rows in _grouped(found["mixtures"], "mixture").items()
        },
        "sections": [
            {
                **corpus,
                "measures": measures.get(corpus["corpus"], []),
                "pictures": pictures,
                "records": [shown(record) for record in drawn.get(corpus["corpus"], [])],
            }
            for corpus, pictures in zip(corpora, _pictures(found), strict=True)
        ],
    }


def _pictures(found: dict[str, list[Row]]) -> list[list[tuple[str, Markup]]]:
    """Return the plots of each corpus with their titles."""
    categories, values = _grouped(found["categories"], "corpus"), _grouped(found["values"], "corpus")
    measures = _measures(found)
    made = []
    for corpus in progress(found["corpora"], len(found["corpora"]), "draw"):
        name = corpus["corpus"]
        kinds = _grouped(categories.get(name, []), "kind")
        pictures = [_balance(kind, kinds[kind]) for kind in KINDS if kind in kinds]
        pictures += [_values(values[name])] if name in values else []
        pictures += [_measure(row) for row in measures.get(name, []) if row["least"] < row["most"]]
        made.append(pictures)
    return made


def _balance(kind: str, rows: Sequence[Row]) -> tuple[str, Markup]:
    named = [row for row in rows if row["name"] is not None]
    rest = [row for row in rows if row["name"] is None]
    tail = f"{rest[0]['members']:,} more" if rest else None
    picture = bars([row["name"] for row in named], {"times": [row["times"] for row in [*named, *rest]]}, tail)
    members, times = (sum(row[column] for row in rows) for column in ("members", "times"))
    return f"{kind}: {members:,} categories, {times:,} times", Markup(picture)


def _values(rows: Sequence[Row]) -> tuple[str, Markup]:
    least, step = rows[0]["least"], (rows[0]["most"] - rows[0]["least"]) / STEPS or 1.0
    counts = {row["bin"]: row["times"] for row in rows}
    edges = [least + (i - 0.5) * step for i in range(STEPS + 2)]
    return "values", Markup(histogram([counts.get(i, 0) for i in range(STEPS + 1)], edges, whole=False))


def _measure(row: Row) -> tuple[str, Markup]:
    counts = {each["bin"]: each["times"] for each in row["bins"]}
    bins = range(min(counts), max(counts) + 1)
    beyond = row["most"] >= row["width"] * (bins[-1] + 1)
    scale, shift, whole = row["width"], 0.0, True
    if row["measure"] == "density":
        scale, whole = scale / 100, False
    elif row["width"] == 1:
        shift = 0.5  # centres the bar of each number over it
    edges = [i * scale - shift for i in (*bins, bins[-1] + 1)]
    title = MEASURES[row["measure"]] + (f"; the last bar: {bins[-1] * scale:,g} and more" if beyond else "")
    return title, Markup(histogram([counts.get(i, 0) for i in bins], edges, whole=whole))


def _picture(rows: Sequence[Row], name: str) -> Markup:
    series: dict[str, Sequence[int]] = {"kept": [row["kept"] for row in rows]}
    if any(row["rejected"] for row in rows):
        series["rejected"] = [row["rejected"] for row in rows]
    return Markup(bars([row[name] for row in rows], series))


def _drawn(rows: Sequence[Row]) -> Markup:
    names = [f"{row['corpus']}/{row['split']}" for row in rows]
    return Markup(bars(names, {"draws": [row["draws"] for row in rows]}))


def _lengths(measures: Sequence[Row]) -> Markup:
    rows = [row for row in measures if row["measure"] == "characters"]
    quantiles = [[row[point] for point in ("p5", "p25", "median", "p75", "p95")] for row in rows]
    return Markup(ranges([row["corpus"] for row in rows], quantiles))


def _totals(found: dict[str, list[Row]]) -> dict[str, int]:
    sums = {
        measure: sum(row["total"] for row in found["measures"] if row["measure"] == measure)
        for measure in ("characters", "labels", "spans", "relations", "events")
    }
    corpora = found["corpora"]
    return {
        "corpora": len(corpora),
        "records": sum(row["kept"] for row in corpora),
        "rejected": sum(row["rejected"] for row in corpora),
        "languages": len({row["language"] for row in corpora}),
        "licences": len({row["licence"] for row in corpora}),
        **sums,
    }


def _measures(found: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Return the measures of each corpus in the order of `MEASURES`, without those that are 0 everywhere."""
    order = list(MEASURES)
    rows = [row for row in found["measures"] + found["span lengths"] if row["most"] > 0]
    return _grouped(sorted(rows, key=lambda row: (row["corpus"], order.index(row["measure"]))), "corpus")


def _grouped(rows: Sequence[Row], column: str) -> dict[str, list[Row]]:
    """Group rows by a column, by which they are sorted."""
    return {value: list(group) for value, group in groupby(rows, itemgetter(column))}


def _newest(store: Store) -> str:
    created = max(manifest.created for _, manifest in store.currents("corpora").values())
    return datetime.fromisoformat(created).strftime("%Y-%m-%d %H:%M:%S %Z")


def _digest(script: str) -> str:
    """Return the hash by which the page's content security policy allows its one script."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
