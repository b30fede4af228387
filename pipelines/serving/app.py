"""The ASGI app: its routes and error handlers. It serves a model, the pages of a store, or both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, PlainTextResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from pipelines.serving.disconnects import is_awaited
from pipelines.serving.engine import Engine, FullError
from pipelines.serving.guard import Guard, refusal
from pipelines.serving.metrics import Metrics
from pipelines.serving.wire import (
    TASKS,
    AbsentError,
    ErrorResponse,
    Limits,
    ModelInfo,
    PredictRequest,
    PredictResponse,
    Tables,
    TablesRequest,
    TooMuchError,
)
from ubert.schema.errors import UserError
from ubert.schema.wrong_keys import sentences

if TYPE_CHECKING:
    from ubert.inference.predictor import Predictor

Found = TypeVar("Found")
ErrorPage = Callable[[Request, int, str], Response]
PAGE = Path(__file__).parent / "page"
FEW_ERRORS = 20  # of a request; only one is sent, but a later one can tell that a missing key is misspelt
TOGETHER = 64  # maximum number of texts in one forward pass
STATUS: dict[type[UserError], int] = {TooMuchError: 413, AbsentError: 404}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorResponse, "description": "The body is not JSON."},
    401: {"model": ErrorResponse, "description": "The API key is missing or wrong."},
    408: {"model": ErrorResponse, "description": "The body did not arrive in time."},
    413: {"model": ErrorResponse, "description": "The request exceeds a limit."},
    422: {"model": ErrorResponse, "description": "The request is wrong."},
    429: {"model": ErrorResponse, "description": "Too many texts wait; Retry-After tells when to try again."},
    503: {"model": ErrorResponse, "description": "The answer took too long."},
}


@dataclass(frozen=True)
class Browser:
    """The pages of a store. `hosts` lists the host names that requests may use; an empty list allows any."""

    routes: APIRouter
    error: ErrorPage
    hosts: Sequence[str] = ()


def create_app(
    load: Callable[[], Predictor] | None,
    *,
    name: str = "",
    limits: Limits,
    key: str | None = None,
    together: int = TOGETHER,
    failed: Callable[[BaseException], None] = lambda error: None,
    browser: Browser | None = None,
) -> FastAPI:
    """Make the app.

    Args:
        load: loads the model once the server has started; None: serve no model.
        name: the model's name, as clients see it.
        key: the API key that requests need; None: they need none.
        together: maximum number of texts in one forward pass.
        failed: called with the error if the model can't be loaded.
        browser: the pages of a store.

    Raises:
        UserError: the API key is empty.
    """
    if key is not None and not key.strip():  # an unset variable; a request with an empty key would pass
        raise UserError(
            "the API key is empty; give one with --api-key or UBERT_API_KEY, or neither to serve without one"
        )
    metrics = Metrics()
    engine = load and Engine(load, limits=limits, together=together, metrics=metrics)

    @asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        if engine is None:
            yield
            return
        task = asyncio.create_task(engine.run())
        task.add_done_callback(lambda task: None if task.cancelled() else failed(task.exception() or SystemExit()))
        yield
        task.cancel()

    app = FastAPI(
        title="ubert",
        version=version("ubert"),
        description="Classify, tag, extract and answer with one model.",
        lifespan=running,
        docs_url=None,  # these pages would load their scripts from another site
        redoc_url=None,
    )
    _explain_errors(app, browser)  # before the guard, which surrounds what was added before it
    app.add_middleware(Guard, key=key, limits=limits, metrics=metrics)
    if browser and browser.hosts:
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=browser.hosts, www_redirect=False)
    app.mount("/page", StaticFiles(directory=PAGE), "page")
    if browser:
        app.include_router(browser.routes)

    @app.get("/metrics", response_class=PlainTextResponse, responses={401: PROBLEMS[401]})
    async def numbers() -> Response:
        """Return the server's metrics for Prometheus."""
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)

    if engine is None:

        @app.head("/", include_in_schema=False)
        @app.get("/", include_in_schema=False)
        async def start() -> RedirectResponse:
            return RedirectResponse("/browse")

    else:
        _add_model(app, engine, name=name, limits=limits, keyed=key is not None)
    return app


def _add_model(app: FastAPI, engine: Engine, *, name: str, limits: Limits, keyed: bool) -> None:
    """Add the page and the routes of a model."""

    @app.head("/", include_in_schema=False)
    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html")

    @app.head("/health", include_in_schema=False)  # many monitors ask with HEAD
    @app.get("/health", responses={503: {"model": ErrorResponse, "description": "The model is not loaded yet."}})
    async def health() -> Response:
        """Tell whether the model is loaded."""
        ready = engine.predictor is not None
        return _json(
            {"ready": ready} if ready else {"error": "the model is not loaded yet"}, 200 if ready else 503
        )

    @app.get("/v1/model", response_model=ModelInfo, responses={401: PROBLEMS[401]})
    async def model() -> ModelInfo:
        """Describe the model, its tasks and its limits."""
        predictor = engine.predictor
        return ModelInfo(
            model=name,
            ready=predictor is not None,
            key=keyed,
            tasks=TASKS,
            thresholds=dict(predictor.thresholds) if predictor else {},
            limits=limits,
        )

    @app.post("/v1/predict", response_model=PredictResponse, responses=PROBLEMS)
    async def predict(asked: PredictRequest, request: Request) -> Response:
        """Predict the annotations of texts."""
        asked.check(limits)
        engine.check_capacity()
        return _json({"model": name, "results": await _in_time(_predicted(engine, asked), request, limits)})

    @app.post("/v1/tables", response_model=Tables, responses=PROBLEMS)
    async def tables(asked: TablesRequest, request: Request) -> Response:
        """Return the probabilities of labels, or those above 0.005 in the structure tables of a short text."""
        asked.check(limits)
        engine.check_capacity()
        return _json(await _in_time(_tables(engine, asked), request, limits))


async def _predicted(engine: Engine, asked: PredictRequest) -> list[Any]:
    instructions = (await engine.ready()).instructions
    from ubert.inference.questions import questions  # with torch, which the model has loaded

    queries = questions(asked.texts, pairs=asked.pairs, instructions=instructions, **asked.arguments())
    return await engine.predict(queries, asked.threshold, asked.overlap)


async def _tables(engine: Engine, asked: TablesRequest) -> Any:
    instructions = (await engine.ready()).instructions
    from ubert.inference.questions import questions

    pairs = None if asked.pair is None else [asked.pair]
    [query] = questions([asked.text], pairs=pairs, instructions=instructions, **asked.arguments())
    return await engine.tables(query)


async def _in_time(answer: Coroutine[Any, Any, Found], request: Request, limits: Limits) -> Found:
    """Await an answer. Cancel it if it takes too long, or if the client has disconnected."""
    computing = asyncio.ensure_future(answer)
    try:
        async with asyncio.timeout(limits.seconds):
            if not await is_awaited(computing, request):
                raise HTTPException(499, "the client has disconnected")
            return await computing
    except TimeoutError:
        sentence = (
            f"there is no answer within {limits.seconds:g} seconds; send fewer or shorter texts, or try later"
        )
        raise HTTPException(503, sentence, {"retry-after": "5"}) from None
    finally:
        computing.cancel()


def _json(content: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")


def _explain_errors(app: FastAPI, browser: Browser | None) -> None:
    """Answer each error with one sentence: as a page below /browse, elsewhere as JSON."""

    def explained(request: Request, status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
        if browser and request.url.path.startswith("/browse"):
            return browser.error(request, status, sentence)
        return refusal(status, sentence, headers)

    @app.exception_handler(UserError)
    async def wrong(request: Request, error: UserError) -> Response:
        return explained(request, STATUS.get(type(error), 422), str(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        errors = error.errors()[:FEW_ERRORS]
        first = errors[0]
        if first["type"] == "json_invalid":
            return explained(request, 400, f"the request is not JSON: {first['ctx']['error']}; send a JSON object")
        if isinstance(first.get("input"), bytes):  # FastAPI parses only what is declared to be JSON
            kind = request.headers.get("content-type", "none")[:100]
            sentence = f"the request has content-type {kind}, expected application/json; send that header"
            return explained(request, 422, sentence)
        if first["loc"] == ("body",):
            return explained(request, 422, "the request is not a JSON object; /openapi.json describes its keys")
        wrong_keys = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        if first["loc"][0] == "body":
            model = request.scope["route"].body_field.field_info.annotation
            items: list[Any] = [{**one, "loc": one["loc"][1:]} for one in errors]
            wrong_keys = sentences(items, "the request", model=model)[0]
        return explained(request, 422, f"{wrong_keys[:600]}; see /openapi.json for what is expected")

    @app.exception_handler(FullError)
    async def full(request: Request, error: FullError) -> Response:
        sentence = f"too many texts wait already; try again in {error.seconds} seconds"
        return explained(request, 429, sentence, {"retry-after": str(error.seconds)})

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        sentence = {
            400: "the request is not JSON in UTF-8; send a JSON object",
            404: "there is no such address; see /openapi.json for all addresses",
            405: f"this address does not take {request.method}; see /openapi.json",
        }.get(error.status_code, str(error.detail))
        return explained(request, error.status_code, sentence, dict(error.headers or {}))

    async def unexpected(request: Request, error: Exception) -> Response:
        return explained(request, 500, "the server failed at this request; its log has the error")

    # FastAPI's own handler is outside of the guard, which would not see the response. Both raise the error again,
    # so that the server logs it.
    app.add_middleware(ServerErrorMiddleware, handler=unexpected)
