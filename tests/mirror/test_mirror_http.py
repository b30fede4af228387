"""Downloads from a web server that fails in every way: the file is complete, or one clear error says why."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from web import Web, serving

from pipelines.mirror import http, resume
from pipelines.mirror.resume import Origin, save
from ubert.schema.errors import UserError

BODY = random.Random(0).randbytes(3_000_000)
OTHER = random.Random(1).randbytes(3_000_000)


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setattr(resume, "FIRST_WAIT", 0.01)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with serving() as web:
        web.files["/a.bin"] = BODY
        web.tags["/a.bin"] = '"one"'
        yield web


def get(web: Web, path: Path, show: Any = lambda *_: None) -> Origin:
    url = f"{web.url}/a.bin"
    return save(url, partial(http.open_at, url), path / "a.bin", show)


def ranges(web: Web) -> list[str | None]:
    return [request.get("Range") for request in web.requests]


def test_a_file_comes_whole_with_what_is_known_of_its_state(web: Web, tmp_path: Path) -> None:
    web.headers["Last-Modified"] = "Sat, 01 Aug 2026 10:00:00 GMT"
    seen: list[tuple[int, int | None]] = []
    origin = get(web, tmp_path, lambda *at: seen.append(at))
    assert (tmp_path / "a.bin").read_bytes() == BODY
    assert origin == Origin(size=len(BODY), etag='"one"', last_modified="Sat, 01 Aug 2026 10:00:00 GMT")
    assert seen[-1] == (len(BODY), len(BODY))
    assert seen == sorted(seen)


def test_a_server_that_is_named_is_asked_for_all_files(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(http.VIA, f"{web.url}/cache/")
    web.files["/cache/host/owner/a.bin"] = BODY
    save(
        "https://host/owner/a.bin", partial(http.open_at, "https://host/owner/a.bin"), tmp_path / "a.bin", _unseen
    )
    assert (tmp_path / "a.bin").read_bytes() == BODY
    with pytest.raises(UserError, match=rf"https://host/b: the server says 404 .* at {web.url}/cache/host/b"):
        http.open_at("https://host/b", 0, None)


def _unseen(*_: Any) -> None:
    pass


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_a_passing_failure_is_tried_again(web: Web, tmp_path: Path, status: int) -> None:
    web.faults = [status, status]
    get(web, tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == BODY
    assert len(web.requests) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 501])
def test_a_lasting_failure_is_not_tried_again(web: Web, tmp_path: Path, status: int) -> None:
    web.faults = [status]
    with pytest.raises(UserError, match=f"a.bin: the server says {status} .*correct the address"):
        get(web, tmp_path)
    assert len(web.requests) == 1


def test_a_broken_connection_resumes_where_it_was(web: Web, tmp_path: Path) -> None:
    web.faults = [("break", 1_000_000), ("break", 500_000)]
    get(web, tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == BODY
    assert ranges(web) == [None, "bytes=1000000-", "bytes=1500000-"]
    assert {request.get("If-Range") for request in web.requests} == {None, '"one"'}


def test_a_later_run_resumes_where_an_earlier_one_gave_up(web: Web, tmp_path: Path) -> None:
    web.faults = [("break", 1_000_000), *[500] * 20]
    with pytest.raises(
        UserError, match="gave up after 6 attempts with 1,000,000 bytes here; the same command continues"
    ):
        get(web, tmp_path)
    web.faults, web.requests = [], []
    get(web, tmp_path)
    assert ranges(web) == ["bytes=1000000-"]
    assert (tmp_path / "a.bin").read_bytes() == BODY


def test_a_file_that_is_whole_is_not_fetched_again(web: Web, tmp_path: Path) -> None:
    first = get(web, tmp_path)
    assert get(web, tmp_path) == first and len(web.requests) == 1


@pytest.mark.parametrize(("ground", "requests"), [(100_000, 13), (100_001, 3)])
def test_attempts_are_counted_anew_after_enough_bytes(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ground: int, requests: int
) -> None:
    monkeypatch.setattr(resume, "GROUND", ground)
    monkeypatch.setattr(resume, "ATTEMPTS", 2)
    web.faults = [("break", 100_000)] * 12
    with nullcontext() if requests == 13 else pytest.raises(UserError, match="with 300,000 bytes here"):
        assert get(web, tmp_path).size == len(BODY)
    assert len(web.requests) == requests


def test_waits_double_up_to_the_longest_unless_the_server_asks_for_more(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(resume, "time", SimpleNamespace(monotonic=time.monotonic, sleep=waits.append))
    monkeypatch.setattr(resume, "FIRST_WAIT", 1.0)
    monkeypatch.setattr(resume, "LONGEST_WAIT", 4.0)
    web.faults = [500, 500, 500, (503, {"Retry-After": "7"}), 500]
    get(web, tmp_path)
    limits = [(0.5, 1), (1, 2), (2, 4), (7, 7), (2, 4)]
    assert all(low <= wait <= high for wait, (low, high) in zip(waits, limits, strict=True)), waits


def test_an_address_that_leads_from_https_to_http_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(url: str, **_: Any) -> Any:
        other = url.replace("https:", "http:")
        return SimpleNamespace(status_code=200, reason="OK", url=other, headers={}, close=lambda: None)

    monkeypatch.setattr("pipelines.mirror.http.requests.get", answer)
    with pytest.raises(UserError, match=r"https://host/a: .* at http://host/a"):
        http.open_at("https://host/a", 0, None)
    assert http.open_at("http://host/a", 0, None).start == 0


@pytest.mark.parametrize("conditions", [True, False])
def test_a_file_that_changes_midway_is_not_stitched(web: Web, tmp_path: Path, conditions: bool) -> None:
    """With a server that looks at If-Range, and one that doesn't."""
    web.conditions = conditions
    web.faults = [("break", 1_000_000), *[500] * 5]
    with pytest.raises(UserError):
        get(web, tmp_path)
    web.faults, web.files["/a.bin"], web.tags["/a.bin"] = [], OTHER, '"two"'
    assert get(web, tmp_path).etag == '"two"'
    assert (tmp_path / "a.bin").read_bytes() == OTHER


def test_a_file_that_became_shorter_midway_is_fetched_anew(web: Web, tmp_path: Path) -> None:
    web.conditions = False
    web.faults = [("break", 2_000_000), *[500] * 5]
    with pytest.raises(UserError):
        get(web, tmp_path)
    web.faults, web.files["/a.bin"] = [], OTHER[:1000]
    get(web, tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == OTHER[:1000]


@pytest.mark.parametrize("tag", [None, 'W/"weak"'])
def test_without_a_sure_sign_of_the_same_file_a_break_begins_anew(
    web: Web, tmp_path: Path, tag: str | None
) -> None:
    web.tags = {"/a.bin": tag} if tag else {}
    web.faults = [("break", 1_000_000)]
    get(web, tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == BODY
    assert ranges(web) == [None, None]


def test_a_date_is_a_sign_of_the_same_file_where_the_tag_is_weak(web: Web, tmp_path: Path) -> None:
    web.tags["/a.bin"], web.headers["Last-Modified"] = 'W/"weak"', "Sat, 01 Aug 2026 10:00:00 GMT"
    web.faults = [("break", 1_000_000)]
    get(web, tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == BODY
    assert ranges(web) == [None, "bytes=1000000-"]
    assert web.requests[1]["If-Range"] == "Sat, 01 Aug 2026 10:00:00 GMT"


def test_a_server_without_ranges_sends_it_anew(web: Web, tmp_path: Path) -> None:
    web.ranges = False
    web.faults = [("break", 1_000_000), ("break", 2_000_000)]
    get(web, tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == BODY


def test_a_body_that_is_always_short_is_a_failure(web: Web, tmp_path: Path) -> None:
    web.ranges = False
    web.faults = [("short", 7)] * 20
    with pytest.raises(UserError, match="gave up after 6 attempts"):
        get(web, tmp_path)
    assert len(web.requests) <= 2 * resume.ATTEMPTS


def test_a_silent_server_is_a_failure(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "READ", 0.2)
    web.faults = [("hang", 60), ("hang", 60)]
    get(web, tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == BODY
    web.faults = [("hang", 60)] * 20
    (tmp_path / "a.bin").unlink()
    with pytest.raises(UserError, match="timed out"):
        get(web, tmp_path)


def test_a_server_that_trickles_is_a_failure(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, and the file never would."""
    monkeypatch.setattr(resume, "READ", 0.0)
    monkeypatch.setattr(http, "SLOWEST", 1e18)
    with pytest.raises(UserError, match=r"bytes in \d+ s; gave up"):
        monkeypatch.setattr(http.requests, "get", partial(_patient, http.requests.get))
        get(web, tmp_path)


def _patient(get: Any, *arguments: Any, **options: Any) -> Any:
    return get(*arguments, **{**options, "timeout": 10})


@pytest.mark.parametrize("after", ["0", "Thu, 01 Jan 1970 00:00:00 GMT", "soon"])
def test_a_server_says_when_to_come_again(web: Web, tmp_path: Path, after: str) -> None:
    web.faults = [(429, {"Retry-After": after})]
    get(web, tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == BODY


def test_a_server_that_wants_to_be_left_alone_for_long_is_a_failure(web: Web, tmp_path: Path) -> None:
    web.faults = [(503, {"Retry-After": "86400"})]
    with pytest.raises(UserError, match=r"503 .*\(it asks to wait 86400 s\); gave up after 1 attempts"):
        get(web, tmp_path)


def test_a_server_may_name_the_date_to_come_again(web: Web, tmp_path: Path) -> None:
    tomorrow = format_datetime(datetime.now(UTC) + timedelta(days=1), usegmt=True)
    web.faults = [(503, {"Retry-After": tomorrow})]
    with pytest.raises(UserError, match=r"asks to wait 86[34]\d\d s\); gave up after 1 attempts"):
        get(web, tmp_path)


def test_no_server_is_a_failure_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "FIRST_WAIT", 0.001)
    url = "http://127.0.0.1:9/a.bin"
    with pytest.raises(UserError, match=r"a.bin: (\[Errno \d+\] )?Connection refused; gave up"):
        save(url, partial(http.open_at, url), tmp_path / "a.bin", lambda *_: None)


def test_a_file_of_unknown_length_comes_whole(web: Web, tmp_path: Path) -> None:
    web.lengths = False
    assert get(web, tmp_path).size is None
    assert (tmp_path / "a.bin").read_bytes() == BODY


def test_bytes_are_kept_as_they_are_sent(web: Web, tmp_path: Path) -> None:
    """A .gz that a server calls an encoding stays a .gz: its hash is that of the file."""
    web.headers["Content-Encoding"] = "gzip"
    get(web, tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == BODY
    assert web.requests[0]["Accept-Encoding"] == "identity"


def test_an_address_that_sends_on_for_ever_is_a_failure(web: Web, tmp_path: Path) -> None:
    web.faults = [(302, {"Location": "/a.bin"})] * 100
    with pytest.raises(UserError, match="redirects"):
        get(web, tmp_path)


def test_downloads_at_once_do_not_disturb_each_other(web: Web, tmp_path: Path) -> None:
    web.faults = [("break", 1_000_000), 500, ("break", 2_000_000), 503]
    folders = [tmp_path / str(n) for n in range(3)]
    for folder in folders:
        folder.mkdir()
    threads = [threading.Thread(target=get, args=(web, folder)) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((folder / "a.bin").read_bytes() == BODY for folder in folders)
