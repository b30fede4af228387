"""The only right to train a run of an object store: an object that is made where there is none, and renewed.

The store compares and writes in one step (If-None-Match, If-Match), so two machines never both get it. Who doesn't
renew it for five minutes, by the store's clock, has lost it: a machine that died holds nobody up for longer.
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
    """What the object says, and its version. `age`: seconds since it was written."""

    content: dict[str, Any]
    version: str
    age: float


@contextmanager
def holding(run: ObjectPath) -> Iterator[str]:
    """Hold the only right to train a run; gives the word that the lock has as long as it is held.

    Raises:
        UserError: another process trains the run, or the store can't be reached.
    """
    word = uuid.uuid4().hex
    content: dict[str, Any] = {"word": word, "host": socket.gethostname(), "process": os.getpid(), "renewed": 0}
    version: str | None = _taken(run, content)
    ended = threading.Event()

    def renew() -> None:
        nonlocal version
        while version and not ended.wait(RENEWED):
            content["renewed"] += 1
            with suppress(
                UserError
            ):  # later, perhaps; whoever writes the run looks whether the lock is still there
                version = _put(run, content, IfMatch=version) or _ours(run, content)

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield word
    finally:
        ended.set()
        thread.join()
        with suppress(UserError):  # it will end by itself
            if version:
                _asked("delete_object", run, IfMatch=version)


def check(run: ObjectPath, word: str) -> None:
    """Refuse to go on where another process has taken the lock.

    Raises:
        UserError: who has it.
    """
    lock = _read(run)
    if lock is None or lock.content["word"] != word:
        who = f"{lock.content['host']} (process {lock.content['process']})" if lock else "nobody"
        raise UserError(
            f"{run}: the lock of this run was lost to {who}: it was removed, or not renewed for {LASTS:.0f} s; "
            "nothing more is written; run the same command again where it should go on"
        )


def _taken(run: ObjectPath, content: dict[str, Any]) -> str:
    """The version of the lock, once it is ours."""
    if version := _put(run, content, IfNoneMatch="*"):
        return version
    if version := _ours(run, content):
        return version
    lock = _read(run)
    if lock is None:  # removed since
        return _taken(run, content)
    if lock.age > LASTS and (version := _put(run, content, IfMatch=lock.version)):
        return version
    raise UserError(
        f"{run}: process {lock.content['process']} on {lock.content['host']} trains this run, and said so "
        f"{lock.age:.0f} s ago; wait for it, or train under another name; if that machine is gone, delete "
        f"{run / FILE} or wait {max(1.0, LASTS - lock.age):.0f} s, then run the same command again"
    )


def _ours(run: ObjectPath, content: dict[str, Any]) -> str | None:
    """The version of the lock if it is ours: the store may have written it though its answer was lost."""
    lock = _read(run)
    return lock.version if lock and lock.content["word"] == content["word"] else None


def _put(run: ObjectPath, content: dict[str, Any], **condition: str) -> str | None:
    """Write the lock; returns its version, or None where the condition doesn't hold."""
    answer = _asked("put_object", run, Body=json.dumps(content).encode(), **condition)
    return None if answer is None else str(answer["ETag"])


def _read(run: ObjectPath) -> Lock | None:
    answer = _asked("get_object", run)
    if answer is None:
        return None
    now = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
    age = (now - answer["LastModified"]).total_seconds()
    return Lock(json.loads(answer["Body"].read()), str(answer["ETag"]), age)


def _asked(request: str, run: ObjectPath, **how: Any) -> dict[str, Any] | None:
    """The store's answer; None where there is no such object, or a condition doesn't hold."""
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
    """Arrow can't write on a condition."""
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
