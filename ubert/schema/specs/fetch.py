"""The `fetch` section of a dataset's spec: a list of downloads, each pinned by a hash of its content."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from ubert.schema.yaml_file import Described

SCHEMES = ("http", "https", "s3", "hf", "file")
FOLDERS = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")  # archives of several files
ARCHIVES = (*FOLDERS, ".gz")


class Fetch(Described):
    """One download into the dataset's folder of the mirror.

    `url` has one of these forms:

        https://host/path, http://...       one file
        s3://bucket/key                     one object, or all objects under a prefix, which ends in `/`
        hf://owner/name, hf:path            a dataset of the Hugging Face hub, or a local folder of that form; its
                                            rows are written as <config>/<split>.parquet
        file:path, or a path                a local file, or a folder, which ends in `/`; a relative path begins at
                                            the folder of specs
    """

    url: str = Field(min_length=1)
    """The address."""
    blake3: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    """Pins the content; `ubert fetch` prints it. It is the hash of one file, of the sorted lines of many files
    (hash, two spaces, path), or of a hub dataset's rows. A commit in the address pins the content, too."""
    into: str | None = None
    """Where to put the file, or the folder of many files, within the dataset's folder. By default a file keeps its
    name, and many files go directly into the dataset's folder."""
    unpack: bool = False
    """Unpack the archive, and keep it."""
    folder: str | None = Field(default=None, min_length=1)
    """Unpack only this folder of the archive, and don't keep the archive. `*/data` is the folder `data` in any
    folder at the top, as in GitHub's archives."""
    only: list[str] | None = Field(default=None, min_length=1)
    """Keep only files of `folder` whose paths match one of these globs. `*` matches slashes, too."""
    config: str | None = Field(default=None, pattern=r"^\w[\w.+ -]*$")
    """The configuration of a hub dataset."""
    revision: str | None = None
    """The commit or tag of a hub dataset."""
    splits: list[str] | None = Field(default=None, min_length=1)
    """The splits of a hub dataset; default: all."""

    @property
    def scheme(self) -> str:
        """The scheme: `http`, `https`, `s3`, `hf` or `file`."""
        scheme, colon, _ = self.url.partition(":")
        return scheme if colon and scheme in SCHEMES else "file"

    @property
    def many(self) -> bool:
        """Whether the download is a folder of files."""
        return self.scheme == "hf" or self.folder is not None or self.of_prefix

    @property
    def of_prefix(self) -> bool:
        """Whether the address is a folder, or the prefix of many objects."""
        return self.scheme in ("s3", "file") and self.url.endswith("/")

    @property
    def pinned(self) -> bool:
        """Whether the content is fixed, by its hash or by a commit in the address."""
        return self.blake3 is not None or re.search(r"/[0-9a-f]{40}\b", self.url) is not None

    @property
    def source(self) -> str:
        """The download's name in the record of a mirror: what is fetched, without its destination."""
        part, items = self.config or self.folder, self.splits or self.only
        return self.url + (f"#{part}" if part else "") + (f"[{','.join(items)}]" if items else "")

    @property
    def name(self) -> str:
        """Path of the file, or of the folder of many files, within the dataset's folder; may be empty."""
        if self.into is not None:
            return self.into
        return "" if self.many else self.file_name

    @property
    def file_name(self) -> str:
        """The last component of the address."""
        path = self.url.split("?")[0].split("#")[0] if self.scheme in ("http", "https") else self.url
        return path.rsplit("/", 1)[-1].removeprefix("file:")

    @field_validator("url")
    @classmethod
    def _is_known(cls, url: str) -> str:
        scheme, colon, rest = url.partition("://")
        if colon and scheme not in SCHEMES:
            raise ValueError(f"expected a local path or one of {', '.join(f'{name}:' for name in SCHEMES)}")
        if colon and not rest.strip("/"):
            raise ValueError("expected an address after the scheme")
        if scheme in ("http", "https") and "@" in rest.split("/")[0]:
            raise ValueError("expected no name and password in an address; put them into ~/.netrc")
        if scheme == "s3" and not rest.partition("/")[2]:
            raise ValueError("expected s3://bucket/key, or a prefix that ends in `/`")
        return url

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.scheme != "hf" and (self.config or self.revision or self.splits):
            raise ValueError("config, revision and splits apply only to hf: addresses; leave them out")
        if self.folder is None and self.only:
            raise ValueError("`only` needs `folder`, whose files it selects; add `folder`, or leave `only` out")
        if self.folder is not None and self.unpack:
            raise ValueError("`folder` unpacks its archive by itself; remove `unpack`")
        if self.folder is not None and not self.file_name.lower().endswith(FOLDERS):
            raise ValueError(
                f"`folder` needs an archive, and {self.url!r} has none of the file extensions {', '.join(FOLDERS)}"
            )
        if self.unpack and (self.many or not self.name.lower().endswith(ARCHIVES)):
            raise ValueError(
                f"unpack: {self.name or self.url!r} does not have an archive's file extension; expected one of "
                f"{', '.join(ARCHIVES)}; give it such a name with `into`"
            )
        if not self.many and not self.name:
            raise ValueError("the address ends in no file name; give one with `into`")
        if self.name and ({"", ".", ".."} & set(self.name.split("/")) or {"\\", "\0"} & set(self.name)):
            raise ValueError(f"expected `into` to be a path inside the dataset's folder, got {self.name!r}")
        return self


def _named_once(given: list[Fetch]) -> list[Fetch]:
    sources = [fetch.source for fetch in given]
    if twice := sorted({source for source in sources if sources.count(source) > 1}):
        raise ValueError(f"fetched twice: {', '.join(twice)}; fetch each once")
    return given


Fetches = Annotated[list[Fetch], AfterValidator(_named_once)]
