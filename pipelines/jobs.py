"""Run commands of `ubert` as jobs on a Ray cluster: submit, follow, list and stop them.

The submitter's code and specs are sent with the job, so that the cluster needs only the installed libraries.
Stores and raw sources are not sent: a job uses those that the cluster's machines can reach. The command runs on
the head node, and its tasks and training workers on any node with free resources.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import ValidationError

from pipelines.store.storage import StorePath
from ubert.schema.errors import UserError

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

CODE = Path(__file__).resolve().parents[1]
PACKAGES = ("pipelines", "ubert")
SPECS = ("datasets", "mixtures", "recipes", "samples")
STOP_SECONDS = 120  # seconds between stopping and killing a job, so that it can write a checkpoint
POLL = 0.2  # seconds between queries of a job's status
JOB = re.compile(r"(?!\.+$)[\w.-]+")  # the id of a job, which others may have submitted
FOREIGN = "the token on this machine is of another cluster or has expired"


def connect(address: str) -> JobSubmissionClient:
    """Connect to the cluster whose dashboard is at `address`. The token comes from RAY_AUTH_TOKEN, from the file
    RAY_AUTH_TOKEN_PATH or from ~/.ray/auth_token.

    Raises:
        UserError: there is no cluster at the address, or the token is missing or wrong.
    """
    if not address.startswith(("http://", "https://")):
        raise UserError(
            f"{address}: expected the address of a cluster's dashboard, such as http://127.0.0.1:8265; give it "
            "with --address, or in RAY_API_SERVER_ADDRESS"
        )
    os.environ.setdefault("RAY_AUTH_MODE", "token")  # makes Ray send the token; read at its first import
    os.environ["RAY_API_SERVER_ADDRESS"] = address  # Ray prefers this variable to its argument
    from ray.job_submission import JobSubmissionClient

    for handler in logging.getLogger("ray").handlers:  # Ray's client logs each request
        handler.setLevel(logging.WARNING)
    with _explained(address):
        return JobSubmissionClient(address)


def submit(
    client: JobSubmissionClient, command: Sequence[str], *, root: StorePath, data: Path | None, specs: Path
) -> str:
    """Submit a command (`["ingest", "--all"]`) to the cluster as a job, and return the job's id.

    Args:
        root: the store, as seen by the cluster's machines.
        data: the mirror of raw sources, as seen by them; default: their UBERT_DATA, else raw/ in the store.
        specs: the folder of specs to send along.

    Raises:
        UserError: the cluster refuses the job.
    """
    variables = {"UBERT_ROOT": str(root.absolute()), "RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS)}
    if data is not None:
        variables["UBERT_DATA"] = str(data.absolute())
    with TemporaryDirectory(prefix="ubert-job-") as folder, _explained(client.get_address()):
        _pack(specs, Path(folder))
        return str(
            client.submit_job(
                entrypoint=shlex.join(["python", "-m", "pipelines.cli", *command]),
                submission_id=f"{command[0]}-{secrets.token_hex(3)}",
                metadata={"command": shlex.join(["ubert", *command])},
                runtime_env={"working_dir": folder, "env_vars": variables},
            )
        )


def _pack(specs: Path, folder: Path) -> None:
    """Copy what a job needs. Folders are listed by name, so that no store and no raw data is sent."""
    for package in PACKAGES:
        shutil.copytree(CODE / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for kind in SPECS:
        if (specs / kind).is_dir():
            shutil.copytree(specs / kind, folder / "corpus_specs" / kind)
    if (specs / "paraphrases.yaml").is_file():
        (folder / "corpus_specs").mkdir(exist_ok=True)
        shutil.copy(specs / "paraphrases.yaml", folder / "corpus_specs")


def follow(client: JobSubmissionClient, job: str) -> int:
    """Print a job's log from its beginning until the job ends, and return its exit code.

    Raises:
        UserError: there is no such job, it was stopped, it could not be started, or the cluster is unreachable.
    """

    async def tail() -> None:
        async for lines in client.tail_job_logs(job):
            sys.stdout.write(lines)
            sys.stdout.flush()

    with _explained(client.get_address(), job):
        details = client.get_job_info(job)
        asyncio.run(tail())
        while not details.status.is_terminal():
            time.sleep(POLL)
            details = client.get_job_info(job)
    if details.status == "STOPPED":
        raise UserError(f"job {job} was stopped; the same command continues it")
    code = details.driver_exit_code
    if code is None and details.status == "FAILED":
        raise UserError(f"job {job} could not run: {_first_line(details.message)}")
    return 128 - code if code and code < 0 else int(code or 0)  # 128 + signal, as in a shell


def listed(client: JobSubmissionClient) -> pa.Table:
    """Return all jobs of the cluster, the newest first: id, command, status, start time, minutes."""
    with _explained(client.get_address()):
        found = [job for job in client.list_jobs() if job.type == "SUBMISSION"]
    rows = [
        {
            "job": job.submission_id,
            "command": (job.metadata or {}).get("command", job.entrypoint),
            "status": job.status.value.lower(),
            "began (UTC)": datetime.fromtimestamp((job.start_time or 0) / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S"),
            # the cluster's clock may be ahead of this one, or have been set back
            "minutes": round(max(0, (job.end_time or time.time() * 1000) - (job.start_time or 0)) / 60_000, 1),
        }
        for job in sorted(found, key=lambda job: job.start_time or 0, reverse=True)
    ]
    names = ("job", "command", "status", "began (UTC)", "minutes")
    return pa.table({name: [row[name] for row in rows] for name in names})


def status(client: JobSubmissionClient, job: str) -> str:
    """Return a job's status (`running`, `succeeded`, ...). Raises `UserError` if there is no such job."""
    with _explained(client.get_address(), job):
        return str(client.get_job_info(job).status.value).lower()


def stop(client: JobSubmissionClient, job: str) -> bool:
    """Stop a job. Return False if it had ended before. Training writes a checkpoint first.

    Raises:
        UserError: there is no such job.
    """
    with _explained(client.get_address(), job):
        return bool(client.stop_job(job))


@contextmanager
def _explained(address: str, job: str | None = None) -> Iterator[None]:
    """Convert errors of the connection to a cluster to a `UserError`. An invalid job id is refused before any
    request, because Ray's client would put it into the URL."""
    import aiohttp
    import requests
    from ray.exceptions import AuthenticationError

    if job is not None and not JOB.fullmatch(job):
        raise UserError(f"{address}: no job {job!r}; `ubert jobs` lists those there are")
    try:
        yield
    except AuthenticationError as error:
        raise _refused(address, FOREIGN if "failed" in str(error) else "this machine has none") from None
    except (UnicodeDecodeError, requests.exceptions.InvalidHeader):
        raise _refused(address, "this machine's token is malformed") from None
    except (requests.JSONDecodeError, KeyError, TypeError, ValidationError):
        raise UserError(
            f"{address}: the server there is not a Ray cluster, or has another version; name another with "
            "--address (RAY_API_SERVER_ADDRESS)"
        ) from None
    except (ConnectionError, requests.RequestException, aiohttp.ClientError) as error:
        if isinstance(error, aiohttp.WSServerHandshakeError) and error.status in (401, 403):
            raise _refused(address, FOREIGN) from None
        goes_on = f"; if only the connection failed, job {job} continues" if job else ""
        raise UserError(
            f"{address}: no Ray cluster answers{goes_on}; start one, or name another with --address "
            "(RAY_API_SERVER_ADDRESS)"
        ) from None
    except RuntimeError as error:  # Ray's client raises it for every answer except success
        if job and "does not exist" in str(error):
            raise UserError(f"{address}: no job {job}; `ubert jobs` lists those there are") from None
        raise UserError(f"{address}: the cluster refused: {_first_line(str(error))}") from None


def _refused(address: str, why: str) -> UserError:
    return UserError(
        f"{address}: a job needs the cluster's token, and {why}; put it into ~/.ray/auth_token, or name its "
        "file in RAY_AUTH_TOKEN_PATH"
    )


def _first_line(message: Any) -> str:
    return str(message or "no reason given").strip().splitlines()[0]
