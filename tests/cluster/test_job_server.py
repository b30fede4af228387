"""`ubert submit` and `ubert jobs` against servers that answer like Ray's or otherwise.

Wrong tokens and ids give one clear error, and no request is made for an id that is a path.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest
from ray_head import environment
from waiting import HANGS

TOKEN = "a" * 64
VERSION = json.dumps({"version": "4", "ray_version": "2.60.0", "ray_commit": "", "session_name": "s"})
RUNNING = json.dumps({"type": "SUBMISSION", "submission_id": "films", "status": "RUNNING", "entrypoint": "e"})
OTHERS = {"a page": "<html></html>", "a list": "[]", "an object": "{}", "a number": "1"}  # say these to everything
# Each case in a process of its own, of one that has imported everything.
FORKED = """
import json, os, sys
from ray.job_submission import JobSubmissionClient
from pipelines import cli, jobs

for folder, variables, arguments in json.load(sys.stdin):
    if not (child := os.fork()):
        os.environ.update(variables)
        for stream, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{folder}/{name}", os.O_CREAT | os.O_WRONLY), stream)
        sys.argv = ["ubert", *arguments]
        cli.main()
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


class Case(NamedTuple):
    server: str
    token: str | bytes | None  # bytes: in a file
    arguments: tuple[str, ...]
    said: str


LIST, SUBMIT = ("jobs",), ("submit", "--", "ingest", "--all")
PATHS = ("../../x", "films/../../../x", "films?a", "films#a", "films%2f..", "/etc", "", " ", ".", "..", "a\nb")
OTHER = "the token on this machine is of another cluster or has expired"
CASES = {
    "another's": Case("Ray", "b" * 64, LIST, OTHER),
    "another's, submit": Case("Ray", "b" * 64, SUBMIT, OTHER),
    "no ASCII": Case("Ray", "naïve", LIST, OTHER),
    "empty": Case("Ray", "", LIST, "this machine has none"),
    "empty, submit": Case("Ray", "", SUBMIT, "this machine has none"),
    "empty file": Case("Ray", b"", LIST, "this machine has none"),
    "no file": Case("Ray", None, LIST, "this machine has none"),
    "two lines": Case("Ray", "a\r\nx: y", LIST, "this machine's token is malformed"),
    "no text": Case("Ray", b"\xff\xfe\n", LIST, "this machine's token is malformed"),
    "expires": Case("expiring", TOKEN, LIST, OTHER),
    "expires, submit": Case("expiring", TOKEN, SUBMIT, OTHER),
    "expires in the log": Case("Ray", TOKEN, ("jobs", "films"), OTHER),
    **{f"{name} answers": Case(name, TOKEN, LIST, "the server there is not a Ray cluster") for name in OTHERS},
    "an error answers": Case("broken", TOKEN, LIST, "no Ray cluster answers"),
    "other jobs": Case("other version", TOKEN, LIST, "the server there is not a Ray cluster"),
    **{f"follow {path!r}": Case("Ray", TOKEN, ("jobs", path), "no job") for path in PATHS},
    **{f"stop {path!r}": Case("Ray", TOKEN, ("jobs", path, "--stop"), "no job") for path in PATHS},
}


class Answers(BaseHTTPRequestHandler):
    """The server's attribute `kind` says how; its `asked` are the paths of requests."""

    server: Any

    def log_message(self, format: str, *arguments: Any) -> None: ...

    def answer(self) -> None:
        self.server.asked.append(self.path)
        self.rfile.read(int(self.headers.get("content-length") or 0))
        status, content = self.content()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content.encode())

    do_GET = do_POST = do_PUT = answer

    def content(self) -> tuple[int, str]:
        kind, sent = self.server.kind, self.headers.get("authorization")
        if kind in OTHERS:
            return 200, OTHERS[kind]
        if kind == "broken":
            return 500, "oops"
        if sent != f"Bearer {TOKEN}" or (kind == "expiring" and self.path != "/api/version"):
            return (403, "Forbidden") if sent else (401, "Unauthorized")
        match self.path:
            case "/api/version":
                return 200, VERSION
            case "/api/jobs/films":
                return 200, RUNNING
            case "/api/jobs/films/logs/tail":
                return 403, "Forbidden"
            case "/api/jobs/" if kind == "other version":
                return 200, '[{"a": 1}]'
        return 404, f"Job {self.path} does not exist"


@contextmanager
def serving(kind: str) -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        vars(server).update(kind=kind, asked=[])
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, str, list[str]]]:
    """Exit code, output, errors of each case, and what it asked the server."""
    folder = tmp_path_factory.mktemp("jobs")
    (folder / "home").mkdir()
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(case.server)) for case in CASES.values()]
        given = []
        for number, (case, server) in enumerate(zip(CASES.values(), servers, strict=True)):
            home = folder / str(number)
            home.mkdir()
            variables = {"RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{server.server_port}"}
            if isinstance(case.token, str):
                variables["RAY_AUTH_TOKEN"] = case.token
            else:
                variables["RAY_AUTH_TOKEN_PATH"] = str(home / "token")
            if isinstance(case.token, bytes):
                (home / "token").write_bytes(case.token)
            given.append((str(home), variables, case.arguments))
        done = subprocess.run(
            [sys.executable, "-c", FORKED],
            input=json.dumps(given),
            env=environment(folder / "home") | {"RAY_AUTH_MODE": "token"},  # which Ray reads when it is imported
            capture_output=True,
            text=True,
            timeout=HANGS,
        )
        assert not done.stderr
        asked = [vars(server)["asked"] for server in servers]
    codes = map(int, done.stdout.split())
    read = [
        tuple((folder / str(i) / name).read_text("utf-8") for name in ("out", "err")) for i in range(len(given))
    ]
    ends = zip(codes, read, asked, strict=True)
    return {name: (code, *said, paths) for name, (code, said, paths) in zip(CASES, ends, strict=True)}


@pytest.mark.parametrize("name", CASES)
def test_wrong_tokens_servers_and_ids_give_one_clear_error(
    name: str, ended: dict[str, tuple[int, str, str, list[str]]]
) -> None:
    case, (code, out, err, asked) = CASES[name], ended[name]
    said = err.removeprefix("job films: running\n")
    assert (code, out) == (1, "") and case.said in said, said
    assert said.startswith("error: http://127.0.0.1:") and said.count("\n") <= 1, said
    if case.said == "no job":
        assert set(asked) == {"/api/version"}
