"""The pages of `ubert browse`, without a browser: what each shows, and that no text becomes markup."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from shutil import copytree

import pyarrow.parquet as pq
import pytest
import requests
from browsed import ATTACK, NEEDLE, NGRAM, SCRIPT, SIZE, record, write_audit, write_store
from browsed import table as evidence
from httpx2 import Response
from served import interrupted
from starlette.testclient import TestClient
from waiting import HANGS
from worlds import corpus, put_corpus

from pipelines.audit.evidence import CONTAMINATION
from pipelines.browse.pages import link
from pipelines.browse.records import Filter, by_id, rows_sql, take
from pipelines.browse.routes import EXAMPLES, RECORDS, browser
from pipelines.browse.training import POINTS
from pipelines.serving.app import create_app
from pipelines.serving.wire import Limits
from pipelines.store.storage import ObjectPath, upload
from pipelines.store.store import Store
from pipelines.store.warehouse import sql
from pipelines.training.remote_logs import LogPieces
from ubert.schema.errors import UserError
from ubert.schema.manifest import MANIFEST
from ubert.training.logs.log import JSONL

HERE = "http://127.0.0.1"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("browse") / "store"
    write_store(root)
    return root


def client_of(root: Path, host: str = "127.0.0.1", key: str | None = None) -> TestClient:
    app = create_app(None, limits=Limits(), key=key, browser=browser(root, host))
    return TestClient(app, base_url=HERE, raise_server_exceptions=False)


@pytest.fixture(scope="module")
def client(root: Path) -> Iterator[TestClient]:
    with client_of(root) as client:
        yield client


class Read(HTMLParser):
    """The words of a page, what is marked in it, its elements, and where its links and pictures lead."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words, self.elements, self.links = "", list[str](), list[str]()
        self.marked, self.found = list[str](), dict[str, str]()  # `found`: words by element with an id
        self._open, self._marks = list[tuple[str, str]](), list[int]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.elements.append(tag)
        self.links += [given[name] or "" for name in ("href", "src", "action") if name in given]
        assert not any(name.startswith("on") or name == "style" for name in given), given
        if tag not in ("meta", "link", "input", "img", "br", "rect", "line", "polyline", "option"):
            self._open.append((tag, given.get("id") or ""))
        if tag == "mark":
            self._marks.append(len(self.marked))
            self.marked.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "mark":
            self._marks.pop()
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.words += data
        for _, name in self._open:
            if name:
                self.found[name] = self.found.get(name, "") + data
        for mark in self._marks:
            self.marked[mark] += data


def read(client: TestClient, path: str, status: int = 200, **parameters: object) -> Read:
    answer = client.get(f"/browse{path}", params={n: str(v) for n, v in parameters.items()} or None)
    assert answer.status_code == status, answer.text[:2000]
    return Read(answer.text)


ADDRESSES = [
    "",
    "/corpora/wild",
    "/corpora/wild?category=person&text=ada",
    "/corpora/wild/record?id=wild/train/%3Cb%3E2",
    "/corpora/wild/rejects",
    "/evidence/duplicates",
    "/evidence/contamination",
    "/evidence/dropped",
    "/evidence/leaks",
    "/evidence/contradictions",
    "/mixtures",
    "/mixtures/both",
    "/runs",
    "/runs/first?other=second",
    "/sql",
]


@pytest.fixture(scope="module")
def answers(client: TestClient) -> dict[str, Response]:
    """Every page once."""
    return {address: client.get(f"/browse{address}") for address in ADDRESSES}


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_page_has_a_script_or_anything_from_elsewhere(answers: dict[str, Response], address: str) -> None:
    assert answers[address].status_code == 200, answers[address].text
    page = Read(answers[address].text)
    assert not {"script", "img", "i", "b", "iframe", "object", "style"} & {*page.elements}
    assert page.elements.count("h1") == page.elements.count("main") == 1
    assert all(link.startswith(("/", "#")) and not link.startswith("//") for link in page.links)
    assert answers[address].headers["content-security-policy"].startswith("default-src 'none'; style-src 'self'")


def test_every_link_leads_to_a_page(client: TestClient, answers: dict[str, Response]) -> None:
    """One of each path that is no page of `answers`."""
    links = (link for answer in answers.values() for link in Read(answer.text).links if "gone" not in link)
    found = {link.partition("?")[0]: link for link in links if link.startswith(("/browse", "/page"))}
    others = [link for path, link in found.items() if path.removeprefix("/browse") not in ADDRESSES]
    assert len(found) > 15 and len(others) > 5
    for address in others:
        assert client.get(address).status_code == 200, address


@pytest.mark.parametrize(
    ("address", "parameters"),
    [
        ("/corpora/wild", {"category": ATTACK}),
        ("/corpora/wild", {"text": ATTACK}),
        ("/corpora/wild/rejects", {"reason": ATTACK}),
        ("/evidence/dropped", {"corpus": ATTACK, "mixture": ATTACK, "record": ATTACK, "kind": ATTACK}),
        ("", {"q": ATTACK}),
    ],
)
def test_what_a_link_asks_for_stays_text(client: TestClient, address: str, parameters: dict[str, str]) -> None:
    assert not {"script", "img"} & {*read(client, address, **parameters).elements}


@pytest.mark.parametrize(
    ("address", "status", "said"),
    [
        ("/corpora/absent", 404, "nothing here yet; make it with `ubert ingest absent`"),
        (f"/corpora/{SCRIPT.replace('/', '')}", 404, "expected lower-case letters"),
        ("/corpora/wild/record?id=wild/9", 404, "no record has the id 'wild/9'"),
        ("/corpora/absent/rejects", 404, "nothing here yet"),
        ("/mixtures/absent", 404, "nothing here yet"),
        ("/runs/absent", 404, "no such run"),
        ("/runs/first?other=..", 422, "run name '..': expected"),
        ("/evidence/absent", 404, "there are duplicates"),
        ("/absent", 404, "no such address"),
        ("/corpora/wild?page=0", 422, "query.page: Input should be greater than or equal to 1"),
        ("/corpora/wild?split=all", 422, "query.split: Input should be"),
    ],
)
def test_a_wrong_address_is_a_page_with_one_sentence(
    client: TestClient, address: str, status: int, said: str
) -> None:
    page = read(client, address, status)
    assert said in page.found["error"] and "\n" not in page.found["error"]
    assert "script" not in page.elements


def test_corpora_are_listed_and_filtered(client: TestClient) -> None:
    page = read(client, "")
    assert "wild" in page.words and "numbers" in page.words and "2 of 2 corpora" in page.words
    assert f"{SIZE}" in page.words and "CC0-1.0" in page.words
    page = read(client, "", q="CLASSIFICATION")
    assert "1 of 2 corpora" in page.words and "wild" not in page.words


def test_a_record_is_drawn_with_its_spans_relations_events_and_labels(client: TestClient) -> None:
    page = read(client, "/corpora/wild", text="ostrava")
    assert page.words.count(NEEDLE) == 1 and "Records 1 to 1" in page.words
    assert "Ada Marlow" in page.marked and "University of Ostrava" in page.marked
    squeezed = " ".join(page.words.split())
    assert "Ada Marlow works for The University of Ostrava Press" in squeezed
    assert "hiring hired employee Ada Marlow" in squeezed
    assert "path" in page.elements
    targets = [link[1:] for link in page.links if "-" in link and link.startswith("#")]
    assert [page.found[target].strip() for target in targets] == [
        "hired", "Ada Marlow", "Ada Marlow", "The University of Ostrava Press",
    ]  # fmt: skip
    page = read(client, "/corpora/numbers")
    assert "number 0" in page.words and "even" in page.words


def test_pages_follow_one_another_and_cover_the_corpus(client: TestClient) -> None:
    seen: list[str] = []
    address, pages = "/browse/corpora/numbers", 0
    while address:
        page = Read(client.get(address).text)
        seen += [word for word in page.words.split("\n") if word.startswith("number ")]
        address = next((link for link in page.links if f"page={pages + 2}" in link), "")
        pages += 1
    assert seen == [f"number {i}" for i in range(SIZE)]
    assert pages == -(-SIZE // RECORDS)
    last = read(client, "/corpora/numbers", page=pages)
    assert f"Page {pages} of {pages}" in last.words and "Next" not in last.words
    assert "No record matches" in read(client, "/corpora/numbers", page=pages + 1).words


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        (Filter(split="test"), [3]),
        (Filter(text="A DOG"), [4, 5]),
        (Filter(text="łódź"), [0]),
        (Filter(text="50%_"), []),
        (Filter(category="person"), [0]),
        (Filter(category=ATTACK), [1]),
        (Filter(split="train", text="a dog", where="text LIKE '%night.'"), [5]),
        (Filter(where="record_id IN (SELECT record_id FROM spans WHERE text = 'Ada Marlow')"), [0]),
        (Filter(where="record_id IN (SELECT record_id FROM duplicates)"), [5]),
    ],
)
def test_a_filter_finds_the_records(root: Path, wanted: Filter, numbers: list[int]) -> None:
    """As rows of the corpus: the condition doesn't change how they are numbered."""
    statement = rows_sql("wild", wanted.condition(), 0, 10)
    assert sql(root, statement, ["wild"])["row"].to_pylist() == numbers


def test_rows_are_those_of_all_parts_and_row_groups(tmp_path: Path) -> None:
    put_corpus(tmp_path, "numbers", corpus("numbers", 1000))
    directory, manifest = Store(tmp_path).current("corpora", "numbers")
    whole = pq.read_table(directory / "part-0.parquet")
    parts = {"part-0.parquet": whole.slice(0, 610), "empty.parquet": whole.slice(0, 0)}
    parts["part-1.parquet"] = whole.slice(610)
    for name, table in parts.items():
        pq.write_table(table, directory / name, row_group_size=100)
    manifest = manifest.model_copy(update={"parts": list(parts)})
    Store(tmp_path).publish("corpora", manifest)
    wanted = [0, 99, 100, 609, 610, 611, 999]
    assert [one.text for one in take(directory, manifest, wanted)] == [f"number {row}" for row in wanted]
    odd = sql(tmp_path, rows_sql("numbers", "text LIKE '%7'", 0, 1000), ["numbers"])["row"].to_pylist()
    assert odd == list(range(7, 1000, 10)), "rows are numbered in the order of the files"
    last = sql(tmp_path, rows_sql("numbers", "text LIKE '%7'", 99, 10), ["numbers"])["row"].to_pylist()
    assert last == [997]
    assert [*by_id(tmp_path, [("numbers", whole["record_id"][800].as_py()), ("gone", "x"), ("numbers", "x")])] == [
        whole["record_id"][800].as_py()
    ]


def test_a_condition_is_one_that_a_mixture_may_have() -> None:
    """The conditions themselves are in test_hostile_sql.py."""
    for where in ("random() < 0.5", "true) OR (true", "true; SELECT 1", " ", "count(*) OVER () > 1", "x" * 5000):
        with pytest.raises(UserError, match=r"^where: .*; |^where: expected one") as problem:
            print(where, Filter(where=where).condition())
        assert "\n" not in str(problem.value)
    for where in ("(" * 900 + "true" + ")" * 900, "-" * 1999 + "1", "[" * 1990):
        with suppress(UserError):  # deep, but no end of the server
            Filter(where=where).condition()


def test_a_condition_of_the_page_runs_in_the_sandbox(client: TestClient) -> None:
    page = read(client, "/corpora/wild", where="len(spans) > 3")
    assert NEEDLE in page.words and "Records 1 to 1" in page.words
    page = read(client, "/corpora/wild", 422, where="tokens > 3")
    assert '"tokens" not found' in page.found["error"] and "No record matches" not in page.words


def test_rejects_have_their_reason_and_raw_row(client: TestClient) -> None:
    page = read(client, "/corpora/wild/rejects")
    assert ATTACK in page.words and "source:1" in page.words and "a detail" in page.words and "a row" in page.words
    assert any("page=2" in link for link in page.links)
    page = read(client, "/corpora/wild/rejects", reason="a rare reason")
    assert page.elements.count("article") == 1
    assert "No row was rejected" in read(client, "/corpora/numbers/rejects").words


def test_duplicates_lie_side_by_side_with_what_they_share(client: TestClient) -> None:
    page = read(client, "/evidence/duplicates", corpus="wild", kind="near")
    assert page.marked == ["A dog lay in the sun all"] * 2
    assert "similarity: 0.80" in page.words and page.elements.count("article") == 1
    assert "The store no longer has this record" in read(client, "/evidence/duplicates", kind="exact").words
    assert read(client, "/evidence/duplicates", record="wild/train/<b>5").marked == page.marked


def test_contamination_marks_the_n_gram(client: TestClient) -> None:
    page = read(client, "/evidence/contamination")
    assert page.marked == [NGRAM.title(), NGRAM]
    assert "There is no match" in read(client, "/evidence/leaks").words


def test_an_n_gram_may_end_with_its_text(tmp_path: Path) -> None:
    one, other = record(1, "one two three", pair="four"), record(2, "x two three", pair="five", split="test")
    put_corpus(tmp_path, "wild", [one, other])
    shared = [(one.record_id, "wild", "train", other.record_id, "wild", "test", 1, 0.5, 1, "two three |")]
    write_audit(tmp_path, "contamination", {"matches.parquet": evidence(CONTAMINATION, shared)})
    with client_of(tmp_path) as client:
        assert read(client, "/evidence/contamination").marked == ["two three"] * 2


def test_a_record_names_its_evidence(client: TestClient) -> None:
    page = read(client, "/corpora/wild/record", id="wild/train/<b>6")
    assert "duplicates: 2" in page.words and "contamination" not in page.words


def test_a_mixture_shows_its_composition_and_what_it_drops(client: TestClient, root: Path) -> None:
    [dropped] = sql(root, "SELECT count(*) AS n FROM dropped WHERE mixture = 'both'").to_pylist()
    manifest = Store(root).current("mixtures", "both")[1]
    page = read(client, "/mixtures/both")
    assert f"100 draws of {sum(one.records for one in manifest.sources)} records" in page.words
    assert f"{dropped['n']} records dropped" in page.words
    assert page.elements.count("svg") == 2 * len(manifest.sources)
    share = next(one.draws for one in manifest.sources if one.corpus == "numbers")
    assert f"{share}.0 %" in page.words


def test_a_mixture_counts_the_suspects_that_it_drops(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "store"
    copytree(root, copy)
    directory, manifest = Store(copy).current("mixtures", "both")
    first = manifest.sources[0].model_copy(update={"dropped_suspects": 777})
    changed = manifest.model_copy(update={"sources": [first, *manifest.sources[1:]]})
    (directory / MANIFEST).write_text(changed.model_dump_json(), encoding="utf-8")
    with client_of(copy) as client:
        page = client.get("/browse/mixtures/both").text
    assert ">777<" in page and f"{first.dropped:,} dropped" in page


def test_runs_have_curves(client: TestClient) -> None:
    page = read(client, "/runs")
    assert "first" in page.words and "1,000" in page.words and "not finished" in page.words
    page = read(client, "/runs/first", other="second")
    assert page.words.count("loss/structure") == 1 and "both/test/span_f1" in page.words
    assert "last 0.004, least 0.004, greatest 4" in page.words
    assert page.elements.count("polyline") == 2 * 5, "loss, rate, norm, speed and metric of both"
    assert SCRIPT in page.words
    text = client.get("/browse/runs/first").text
    points = text.split('points="')[1].split('"')[0].split()
    assert 100 < len(points) <= POINTS and "nan" not in text.lower()


def test_runs_of_an_object_store_have_curves_that_grow(root: Path, remote: ObjectPath, tmp_path: Path) -> None:
    whole = (root / "runs" / "first" / JSONL).read_bytes()
    there, log = remote / "runs" / "first", tmp_path / "log"
    upload(root / "runs" / "first" / "recipe.yaml", there / "recipe.yaml")
    upload(root / "runs" / "first" / "recipe.yaml", remote / "runs" / "..<b>" / "recipe.yaml")
    pieces = LogPieces(there / JSONL)
    with client_of(remote) as client:
        assert "ubert mix" in read(client, "/mixtures").words
        for end in (whole.index(b"\n") + 1, len(whole)):
            log.write_bytes(whole[:end])
            pieces.put(log)
            page = read(client, "/runs/first")
            assert page.elements.count("polyline") == (5 if end == len(whole) else 4), "a metric is measured last"
            assert ("last 0.004, least 0.004, greatest 4" in page.words) == (end == len(whole))
        assert "<b>" not in read(client, "/runs").words
        assert "no such run" in read(client, "/runs/second", 404).words
        (there / "recipe.yaml").unlink()
        assert "no such run" in read(client, "/runs/first", 404).words


def test_sql_is_a_table_or_a_sentence(client: TestClient) -> None:
    page = read(client, "/sql", q="SELECT record_id, text FROM records WHERE corpus = 'wild' ORDER BY record_id")
    assert "6 rows" in page.words and ATTACK in page.words and "script" not in page.elements
    page = read(client, "/sql", 422, q=f"COPY records TO 'x' -- {SCRIPT}")
    assert "expected one SELECT, got COPY" in page.found["error"] and SCRIPT in page.found["q"]


@pytest.mark.parametrize("statement", EXAMPLES.values(), ids=EXAMPLES)
def test_examples_are_right(root: Path, statement: str) -> None:
    sql(root, statement)


def test_a_statement_ends_with_the_client_that_waits_for_it(root: Path) -> None:
    class GoneRequest:
        async def is_disconnected(self) -> bool:
            return True

    import asyncio

    from pipelines.browse.statements import Statements

    endless = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"
    with pytest.raises(UserError, match="its process was ended"):
        asyncio.run(Statements(root)(GoneRequest(), endless, "SQL"))  # type: ignore[arg-type]


def test_another_name_of_this_machine_is_refused(root: Path) -> None:
    with client_of(root) as client:
        assert client.get("/browse", headers={"host": "localhost:8000"}).status_code == 200
        assert client.get("/browse", headers={"host": "[::1]:8000"}).status_code == 200
        assert client.get("/browse", headers={"host": "evil.example"}).status_code == 400
    with client_of(root, host="0.0.0.0") as client:
        assert client.get("/browse", headers={"host": "store.example"}).status_code == 200


def test_a_key_guards_the_pages(root: Path) -> None:
    with client_of(root, key="s3cret") as client:
        answer = client.get("/browse")
        assert answer.status_code == 401 and answer.headers["www-authenticate"].startswith("Basic realm=")
        assert client.get("/browse/sql", auth=("anyone", "wrong")).status_code == 401
        assert client.get("/browse", headers={"authorization": "Basic %%%"}).status_code == 401
        assert client.get("/browse", auth=("anyone", "s3cret")).status_code == 200
        assert client.get("/browse", headers={"authorization": "Bearer s3cret"}).status_code == 200


def test_without_a_model_the_first_page_is_the_list_of_corpora(client: TestClient) -> None:
    answer = client.get("/", follow_redirects=False)
    assert answer.status_code == 307 and answer.headers["location"] == "/browse"
    assert client.get("/v1/model").status_code == 404
    assert client.get("/openapi.json").json()["paths"].keys() == {"/metrics"}


def test_an_empty_store_is_no_error(tmp_path: Path) -> None:
    with client_of(tmp_path / "none") as client:
        assert "ubert ingest" in read(client, "").words
        assert "ubert mix" in read(client, "/mixtures").words
        assert "ubert pretrain" in read(client, "/runs").words
        assert "ubert duplicates" in read(client, "/evidence/duplicates").words


def test_a_link_leaves_out_what_is_not_asked_for() -> None:
    assert link("/corpora/a", {"text": "x&y <", "where": ""}, page=1) == "/browse/corpora/a?text=x%26y+%3C"
    assert link("/corpora/a", {"page": 2}, page=3) == "/browse/corpora/a?page=3"


@pytest.mark.slow
def test_the_command_serves_the_store(root: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "UBERT_API_KEY"}
    with interrupted(["browse", "--root", str(root)], environment) as address:
        assert "wild" in requests.get(address, timeout=HANGS).text
