"""Where a dataset's raw files come from: `fetch` in its spec, a list of downloads, each pinned by its content."""

from __future__ import annotations

from typing import Self

from pydantic import Field, field_validator, model_validator

from ubert.schema.yaml_file import Strict

SCHEMES = ("http", "https", "s3", "hf", "file")
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".gz")


class Fetch(Strict):
    """One download into the dataset's folder of the mirror.

    `url`, by its scheme:

        https://host/path, http://...       one file
        s3://bucket/key                     one object, or all objects under a prefix, which ends in `/`
        hf://owner/name, hf:path            a dataset of the Hugging Face hub, or a local folder of that form; its
                                            rows are written as <config>/<split>.parquet
        file:path, or a path                a local file, or a folder, which ends in `/`; a relative path begins at
                                            the folder of specs

    `into` is where a file, or the folder that many files make up, lies in the dataset's folder; by default a file
    keeps its name, and many files lie in the dataset's folder itself. `unpack` takes an archive apart beside
    itself. `blake3` pins the content: of one file its hash; of many the hash of their sorted "hash  path" lines;
    of the hub that of the rows (`ubert fetch` prints it). `config`, `revision` (a commit or tag) and `splits` are
    for the hub.
    """

    url: str = Field(min_length=1)
    blake3: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    into: str | None = None
    unpack: bool = False
    config: str | None = Field(default=None, pattern=r"^\w[\w.+ -]*$")
    revision: str | None = None
    splits: list[str] | None = Field(default=None, min_length=1)

    @property
    def scheme(self) -> str:
        """`http`, `https`, `s3`, `hf` or `file`."""
        scheme, colon, _ = self.url.partition(":")
        return scheme if colon and scheme in SCHEMES else "file"

    @property
    def many(self) -> bool:
        """Whether it brings a folder of files."""
        return self.scheme == "hf" or (self.scheme in ("s3", "file") and self.url.endswith("/"))

    @property
    def source(self) -> str:
        """What is fetched, without where to: the name of the download in the record of a mirror."""
        config = f"#{self.config}" if self.config else ""
        return self.url + config + (f"[{','.join(self.splits)}]" if self.splits else "")

    @property
    def name(self) -> str:
        """Path of the file in the dataset's folder; of many files, of their folder, or empty."""
        if self.into is not None:
            return self.into
        path = self.url.split("?")[0].split("#")[0] if self.scheme in ("http", "https") else self.url
        return "" if self.many else path.rsplit("/", 1)[-1].removeprefix("file:")

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
            raise ValueError("config, revision and splits are for hf: alone")
        if self.unpack and (self.many or not self.name.lower().endswith(ARCHIVES)):
            raise ValueError(
                f"unpack: {self.name or self.url!r} is named like no archive; expected one of "
                f"{', '.join(ARCHIVES)}; give it such a name with `into`"
            )
        if not self.many and not self.name:
            raise ValueError("the address ends in no file name; give one with `into`")
        if self.name and ({"", ".", ".."} & set(self.name.split("/")) or {"\\", "\0"} & set(self.name)):
            raise ValueError(f"expected `into` to be a path inside the dataset's folder, got {self.name!r}")
        return self
