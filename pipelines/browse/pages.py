"""Renders pages as HTML. Texts of datasets are untrusted, so the templates escape everything."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from pipelines import report
from pipelines.report.visible import count, shortened, visible

STYLE = Path(report.__file__).parent / "templates" / "record.css"
HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
}


def link(path: str, parameters: Mapping[str, object] | None = None, **more: object) -> str:
    """Return a URL below /browse. Leave out empty parameters, and the number of the first page."""
    given = {name: value for name, value in {**(parameters or {}), **more}.items() if value not in (None, "")}
    if given.get("page") == 1:
        del given["page"]
    return quote(f"/browse{path}") + (f"?{urlencode(given)}" if given else "")


_ENVIRONMENT = Environment(
    loader=ChoiceLoader([PackageLoader("pipelines.browse"), PackageLoader("pipelines.report")]),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters.update(visible=visible, shortened=shortened, count=count)
_ENVIRONMENT.globals.update(link=link)


def html(request: Request, template: str, status: int = 200, **content: Any) -> HTMLResponse:
    """Render a page. If the request has a start time, the page shows how long it took."""
    began = getattr(request.state, "began", None)
    seconds = None if began is None else time.perf_counter() - began
    served = any(getattr(route, "path", "") == "/v1/model" for route in request.app.routes)
    found = _ENVIRONMENT.get_template(f"{template}.html.jinja")
    return HTMLResponse(found.render(content, seconds=seconds, served=served), status, HEADERS)


def error(request: Request, status: int, sentence: str) -> HTMLResponse:
    """Render a page that shows an error."""
    return html(request, "error", status, sentence=sentence)
