"""The lock of a run in an object store: an object that its holder creates and renews.

The store compares and writes in one step (If-None-Match, If-Match), so two machines never both hold the
lock. A holder that doesn't renew it for five minutes, by the store's clock, loses it. A dead machine
therefore blocks others for five minutes at most.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, NamedTuple

from pipelines.store.storage import ANSWER_SECONDS, ATTEMPTS, CONNECT_SECONDS, ObjectPath, endpoint
from ubert.schema.errors import UserError

FILE = "lock.json"
LASTS, RENEWED = 300.0, 30.0  # seconds


class Lock(NamedTuple):
    """The content of the lock object, its version (ETag), and the seconds since it was written."""

    content: dict[str, Any]
    version: str
    age: float


@contextmanager
def holding(run: ObjectPath) -> Iterator[str]:
    """Hold the lock of a run, and renew it. Yield its token.

    Raises:
        UserError: another process trains the run, or the store can't be reached.
    """
    token = uuid.uuid4().hex
    content: dict[str, Any] = {"word": token, "host": socket.gethostname(), "process": os.getpid(), "renewed": 0}
    version: str | None = _taken(run, content)
    ended = threading.Event()

    def renew() -> None:
        nonlocal version
        while version and not ended.wait(RENEWED):
            content["renewed"] += 1
            with suppress(UserError):  # retried at the next renewal; `check` runs before each write
                version = _put(run, content, IfMatch=version) or _ours(run, content)

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield token
    finally:
        ended.set()
        thread.join()
        with suppress(UserError):  # the lock expires by itself
            if version:
                _call("delete_object", run, IfMatch=version)


def check(run: ObjectPath, token: str) -> None:
    """Check that the lock of a run still has this token.

    Raises:
        UserError: the lock was removed, another process holds it, or the store can't be reached.
    """
    lock = _read(run)
    if lock is None or lock.content["word"] != token:
        who = f"{lock.content['host']} (process {lock.content['process']})" if lock else "nobody"
        raise UserError(
            f"{run}: the lock of this run was lost to {who}: it was removed, or not renewed for {LASTS:.0f} s; "
            "nothing more is written; run the same command again to continue"
        )


def _taken(run: ObjectPath, content: dict[str, Any]) -> str:
    """Acquire the lock, and return its version.

    Raises:
        UserError: another process holds it, or the store can't be reached.
    """
    if version := _put(run, content, IfNoneMatch="*"):
        return version
    if version := _ours(run, content):
        return version
    lock = _read(run)
    if lock is None:  # removed in the meantime
        return _taken(run, content)
    if lock.age > LASTS and (version := _put(run, content, IfMatch=lock.version)):
        return version
    raise UserError(
        f"{run}: process {lock.content['process']} on {lock.content['host']} trains this run; it renewed its "
        f"lock {lock.age:.0f} s ago; wait for it, or train under another name; if that machine has failed, delete "
        f"{run / FILE} or wait {max(1.0, LASTS - lock.age):.0f} s, then run the same command again"
    )


def _ours(run: ObjectPath, content: dict[str, Any]) -> str | None:
    """Return the version of the lock if it is ours, else None. A write may have succeeded although its
    response was lost."""
    lock = _read(run)
    return lock.version if lock and lock.content["word"] == content["word"] else None


def _put(run: ObjectPath, content: dict[str, Any], **condition: str) -> str | None:
    """Write the lock. Return its version, or None if the condition doesn't hold."""
    answer = _call("put_object", run, Body=json.dumps(content).encode(), **condition)
    return None if answer is None else str(answer["ETag"])


def _read(run: ObjectPath) -> Lock | None:
    answer = _call("get_object", run)
    if answer is None:
        return None
    now = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
    age = (now - answer["LastModified"]).total_seconds()
    return Lock(json.loads(answer["Body"].read()), str(answer["ETag"]), age)


def _call(request: str, run: ObjectPath, **how: Any) -> dict[str, Any] | None:
    """Send a request about the lock object. Return the response, or None if there is no such object or a
    condition doesn't hold."""
    from botocore.exceptions import BotoCoreError, ClientError

    bucket, _, key = (run / FILE).key.partition("/")
    try:
        return dict(getattr(_client(), request)(Bucket=bucket, Key=key, **how))
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] in (404, 409, 412):
            return None
        raise _explained(run, error) from error
    except BotoCoreError as error:
        raise _explained(run, error) from error


def _explained(run: ObjectPath, error: Exception) -> UserError:
    return UserError(
        f"{run / FILE}: the store fails: {error}; run the same command again, or correct --root (UBERT_ROOT) and "
        "the variables AWS_*"
    )


@lru_cache(maxsize=1)
def _client() -> Any:
    """Make an S3 client, because Arrow has no conditional writes."""
    import botocore.session
    from botocore.config import Config

    config = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=ANSWER_SECONDS,
        retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
        s3={"addressing_style": "path"} if endpoint() else {},
    )
    session = botocore.session.get_session()
    region = os.environ.get("AWS_REGION") or None
    return session.create_client("s3", region_name=region, endpoint_url=endpoint(), config=config)
