"""Download objects of S3-compatible stores.

The endpoint and credentials come from the usual variables (AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN) or from ~/.aws.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING

from pipelines.mirror import resume
from pipelines.mirror.resume import CHUNK, BrokenError, Open, Opened, Origin
from pipelines.store.storage import object_store
from ubert.schema.errors import UserError
from ubert.schema.specs.fetch import Fetch

if TYPE_CHECKING:
    from pyarrow.fs import S3FileSystem

BLOCK = 8 * CHUNK  # bytes of one request
REQUESTS = 3  # immediate attempts of a request; `resume` retries with longer waits
# Errors that a retry can't change.
_FINAL = re.compile("ACCESS_DENIED|INVALID_ACCESS_KEY|SIGNATURE|NO_SUCH|NOT_FOUND|INVALID_(BUCKET|OBJECT)")


def objects(fetch: Fetch) -> dict[str, Open]:
    """Return functions that open the object, or the objects under the prefix, by their name below it.

    Raises:
        UserError: there are no objects, or the store refuses to list them.
    """
    from pyarrow.fs import FileSelector, FileType

    path = fetch.url.removeprefix("s3://")
    store = object_store(resume.CONNECT, resume.READ, REQUESTS)
    if not fetch.of_prefix:
        return {path.rsplit("/", 1)[-1]: partial(_open_at, store, path)}
    try:
        found = store.get_file_info(FileSelector(path, recursive=True))
    except OSError as error:
        raise UserError(f"{fetch.url}: {error}; correct the address in the spec, or the AWS_ variables") from None
    files = {info.path.removeprefix(path): info.path for info in found if info.type == FileType.File}
    if not files:
        raise UserError(f"{fetch.url}: there is no object under this prefix; correct the address in the spec")
    return {name: partial(_open_at, store, files[name]) for name in sorted(files)}


def _open_at(store: S3FileSystem, path: str, have: int, known: Origin | None) -> Opened:
    origin = _origin(store, path)
    start = have if origin == known else 0
    return Opened(start, origin, _chunks(store, path, start, origin))


def _origin(store: S3FileSystem, path: str) -> Origin:
    try:
        with store.open_input_file(path) as file:
            metadata = {key: value.decode() for key, value in (file.metadata() or {}).items()}
            return Origin(size=file.size(), etag=metadata.get("ETag"), last_modified=metadata.get("Last-Modified"))
    except OSError as error:
        raise _explained(path, error) from None


def _chunks(store: S3FileSystem, path: str, start: int, origin: Origin) -> Generator[bytes, None, None]:
    try:
        with store.open_input_file(path) as file:
            file.seek(start)
            while data := file.read(BLOCK):
                yield data
    except OSError as error:
        raise _explained(path, error) from None
    if _origin(store, path) != origin:
        raise BrokenError("the object changed while it was being fetched", mixed=True)


def _explained(path: str, error: OSError) -> Exception:
    if isinstance(error, FileNotFoundError | PermissionError) or _FINAL.search(str(error)):
        return UserError(f"s3://{path}: {error}; correct the address in the spec, or the AWS_ variables")
    return BrokenError(str(error))
