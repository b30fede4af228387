"""The routes below /browse. Every page depends only on its URL and the store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, Response

from pipelines.browse import evidence, training
from pipelines.browse.pages import HEADERS, STYLE, error, html
from pipelines.browse.records import SECONDS, Filter, by_id, rows_sql, take
from pipelines.browse.rejects import rejects
from pipelines.browse.statements import Statements
from pipelines.report.facts import ALL
from pipelines.report.records import shown
from pipelines.serving.app import Browser
from pipelines.serving.wire import AbsentError
from pipelines.store.storage import StorePath
from pipelines.store.store import Store
from pipelines.store.warehouse import VIEWS, sql
from ubert.schema.errors import UserError
from ubert.schema.manifest import RECIPE, CorpusManifest

LOOPBACK = ("127.0.0.1", "[::1]", "localhost")
RECORDS = 20  # per page
SHOWN = 500  # maximum rows of a statement
EXAMPLES = {
    "Records by task": "SELECT task, count(*) AS records, avg(length(text)) AS characters\n"
    "FROM records GROUP BY task ORDER BY records DESC",
    "Frequent mentions": "SELECT category, lower(text) AS mention, count(*) AS times\n"
    "FROM spans GROUP BY ALL ORDER BY times DESC LIMIT 50",
    "Longest texts": "SELECT record_id, length(text) AS characters\n"
    "FROM records ORDER BY characters DESC LIMIT 20",
    "Relations": "SELECT corpus, head_text, category, tail_text FROM relations LIMIT 50",
    "Why rows were rejected": "SELECT corpus, reason, count(*) AS rows\n"
    "FROM rejects GROUP BY ALL ORDER BY rows DESC",
    "Near duplicates": "SELECT record_id, keeper_id, similarity\n"
    "FROM duplicates WHERE kind = 'near' ORDER BY similarity LIMIT 50",
    "What mixtures drop": "SELECT mixture, reason, kind, count(*) AS records FROM dropped GROUP BY ALL",
}

Number = Annotated[int, Query(alias="page", ge=1, le=1_000_000_000)]
AnySplit = Literal["", "train", "validation", "test"]


def browser(root: StorePath, host: str) -> Browser:
    """Make the pages of a store.

    If the host is a loopback address, requests must use its name as their host. Otherwise another site
    could point its own name at this machine, and its pages could read the store (DNS rebinding).
    """
    return Browser(_routes(root.absolute()), error, LOOPBACK if host in {*LOOPBACK, "::1"} else ())


def _began(request: Request) -> None:
    request.state.began = time.perf_counter()


def _routes(root: StorePath) -> APIRouter:
    ask = Statements(root)
    routes = APIRouter(prefix="/browse", include_in_schema=False, dependencies=[Depends(_began)])
    _add_corpora(routes, root)
    _add_records(routes, root, ask)
    _add_evidence(routes, root)
    _add_mixtures(routes, root)
    _add_runs(routes, root)
    _add_sql(routes, ask)

    @routes.get("/record.css")
    def style() -> Response:
        return FileResponse(STYLE, headers=HEADERS)

    return routes


def _add_corpora(routes: APIRouter, root: StorePath) -> None:
    store = Store(root)

    @routes.get("")
    def corpora(request: Request, q: str = "") -> Response:
        manifests = [manifest for _, manifest in store.currents("corpora").values()]
        chosen = [one for one in manifests if q.lower() in _described(one)]
        return html(request, "corpora", corpora=chosen, everything=len(manifests), q=q, root=str(root))

    @routes.get("/corpora/{name}/record")
    def record(request: Request, name: str, id: str) -> Response:
        _current(store, "corpora", name)
        if id not in (records := by_id(root, [(name, id)])):
            raise AbsentError(f"{name}: no record has the id {id!r}; the pages of the corpus show the ids")
        return html(
            request,
            "one_record",
            corpus=name,
            record=shown(records[id], ALL),
            record_id=id,
            matches=evidence.matches(root, id),
        )

    @routes.get("/corpora/{name}/rejects")
    def rejected(
        request: Request, name: str, split: AnySplit = "", reason: str = "", number: Number = 1
    ) -> Response:
        found = rejects(root, name, split, reason, number)
        wanted = {"split": split, "reason": reason}
        return html(request, "rejects", corpus=name, found=found, wanted=wanted, number=number)


def _add_records(routes: APIRouter, root: StorePath, ask: Statements) -> None:
    store = Store(root)

    @routes.get("/corpora/{name}")
    async def corpus(
        request: Request,
        name: str,
        split: AnySplit = "",
        category: str = "",
        text: str = "",
        where: str = "",
        number: Number = 1,
    ) -> Response:
        wanted, problem = Filter(split, category, text, where), ""
        directory, manifest = await run_in_threadpool(_current, store, "corpora", name)
        total = sum(counts.kept for counts in manifest.splits if split in ("", counts.split))
        try:
            rows = await rows_of(request, name, wanted, total, (number - 1) * RECORDS)
            records = await run_in_threadpool(take, directory, manifest, rows[:RECORDS])
        except UserError as found:
            rows, records, problem = [], [], str(found)
        return html(
            request,
            "corpus",
            422 if problem else 200,
            corpus=manifest,
            wanted=wanted._asdict(),
            records=[(record.record_id, shown(record)) for record in records],
            categories=sorted({category.name for record in records for category in record.categories}),
            number=number,
            first=(number - 1) * RECORDS + 1,
            pages=None if category or text or where else -(-total // RECORDS),
            more=len(rows) > RECORDS,
            problem_=problem,
        )

    async def rows_of(request: Request, name: str, wanted: Filter, total: int, first: int) -> Sequence[int]:
        """Return the row numbers of a page, and one more if there is a next page."""
        count = RECORDS + 1
        if not any(wanted):
            return range(min(first, total), min(first + count, total))
        statement = rows_sql(name, wanted.condition(), first, count)
        if wanted.where:
            table = await ask(request, statement, "where", [name])
        else:
            table = await run_in_threadpool(sql, root, statement, [name], SECONDS)
        found: list[int] = table["row"].to_pylist()
        return found


def _add_evidence(routes: APIRouter, root: StorePath) -> None:
    @routes.get("/evidence/{view}")
    def matches(
        request: Request,
        view: str,
        corpus: str = "",
        other: str = "",
        kind: str = "",
        mixture: str = "",
        record: str = "",
        number: Number = 1,
    ) -> Response:
        if view not in evidence.VIEWS:
            raise AbsentError(f"no evidence is called {view!r}; there are {', '.join(evidence.VIEWS)}")
        wanted = evidence.Wanted(corpus, other, kind, mixture, record)
        pairs, more = evidence.pairs(root, view, wanted, number)
        return html(
            request,
            "evidence",
            view=view,
            views=evidence.VIEWS,
            wanted=wanted._asdict(),
            groups=evidence.groups(root, view, wanted),
            pairs=pairs,
            number=number,
            more=more,
        )


def _add_mixtures(routes: APIRouter, root: StorePath) -> None:
    store = Store(root)

    @routes.get("/mixtures")
    def mixtures(request: Request) -> Response:
        found = [manifest for _, manifest in store.currents("mixtures").values()]
        return html(request, "mixtures", mixtures=found)

    @routes.get("/mixtures/{name}")
    def mixture(request: Request, name: str) -> Response:
        return html(request, "mixture", mixture=_current(store, "mixtures", name)[1])


def _add_runs(routes: APIRouter, root: StorePath) -> None:
    @routes.get("/runs")
    def runs(request: Request) -> Response:
        return html(request, "runs", runs=training.runs(root))

    @routes.get("/runs/{name}")
    def run(request: Request, name: str, other: str = "") -> Response:
        found = training.runs(root)
        shown = [training.run(found, one) for one in dict.fromkeys([name, other]) if one]
        recipe = (shown[0].folder / RECIPE).read_text(encoding="utf-8", errors="replace")
        names = [one.name for one in found if one.name != name]
        return html(
            request, "run", run=shown[0], other=other, names=names, recipe=recipe, plots=training.plots(shown)
        )


def _add_sql(routes: APIRouter, ask: Statements) -> None:
    @routes.get("/sql")
    async def statement(request: Request, q: str = "") -> Response:
        problem, columns, rows, total = "", list[str](), list[tuple[object, ...]](), 0
        try:
            if q.strip():
                table = await ask(request, q, "SQL")
                columns, total = table.column_names, len(table)
                rows = [*zip(*(column.to_pylist() for column in table.slice(0, SHOWN).columns), strict=True)]
        except UserError as found:
            problem = str(found)
        return html(
            request,
            "sql",
            422 if problem else 200,
            q=q,
            examples=EXAMPLES,
            views=VIEWS,
            columns=columns,
            rows=rows,
            total=total,
            problem_=problem,
        )


def _described(corpus: CorpusManifest) -> str:
    return f"{corpus.name} {corpus.task} {corpus.language} {corpus.licence} {corpus.licence_class}".lower()


def _current(store: Store, kind: Literal["corpora", "mixtures"], name: str) -> Any:
    """Return the directory and the manifest of the corpus or mixture that a URL names.

    Raises:
        AbsentError: it doesn't exist.
    """
    try:
        return store.current(kind, name)
    except UserError as problem:
        raise AbsentError(str(problem)) from None
