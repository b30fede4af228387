"""The addresses of real datasets give the files that their specs read, and the same records as the mirror.

A server on loopback has the mirror's files at the addresses of their publishers.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest
from test_real_datasets import COUNTS, SPECS, folder_of
from typer.testing import CliRunner
from web import Web, serving

from pipelines.cli.commands import app
from pipelines.ingest.ingest import ingest
from pipelines.mirror import fill, resume
from pipelines.mirror.http import VIA
from pipelines.sources import file_hash, matches, reader
from pipelines.specs import dataset_spec, file_options
from ubert.schema.errors import UserError
from ubert.schema.specs.dataset import DatasetSpec
from ubert.schema.specs.fetch import Fetch

# The mirror made these files itself, out of a README.
WITHOUT = {
    *(f"format_examples_ubert_{task}" for task in ("choice", "classification", "ner", "qa")),
    "format_examples_uie_ner",
}
FETCHED = sorted(COUNTS.keys() - WITHOUT)
spec_of = cache(lambda name: dataset_spec(name, SPECS))


def read_by(spec: DatasetSpec, folder: Path) -> set[str]:
    """The files of the mirror that a spec reads."""
    form, found = reader(spec.format), set[str]()
    for entry in spec.files:
        for path in matches(folder, entry.path):
            found.update((path, *form.companions(folder, path, file_options(spec, entry))))
    return found


def brings(fetch: Fetch, path: str) -> bool:
    if fetch.folder is not None:
        return any(fnmatchcase(path, glob) for glob in fetch.only or ["*"])
    if fetch.unpack:
        return fetch.name.endswith(".zip") or path == fetch.name.removesuffix(".gz")
    return path == fetch.name


def test_only_what_the_mirror_made_itself_is_not_fetched() -> None:
    assert {name for name in COUNTS if not spec_of(name).fetch} == WITHOUT


@pytest.mark.parametrize("name", FETCHED)
def test_what_a_spec_reads_is_brought_from_its_pinned_upstream(name: str) -> None:
    spec, folder = spec_of(name), folder_of(name)
    read = read_by(spec, folder)
    assert not {path for path in read if not any(brings(fetch, path) for fetch in spec.fetch)}
    assert spec.upstream and spec.upstream.revision
    repository = spec.upstream.url.removeprefix("https://github.com/")
    for fetch in spec.fetch:
        assert fetch.url.startswith(
            (
                f"https://raw.githubusercontent.com/{repository}/{spec.upstream.revision}/",
                f"https://github.com/{repository}/archive/{spec.upstream.revision}.tar.gz",
            )
        )
        if fetch.blake3 and fetch.folder is None:
            assert file_hash(folder / fetch.name) == fetch.blake3


# Single files with an heir, a part of them, one that is packed, many of an archive, a part of those.
REALLY = ["trec", "trec_fine", "goemotions", "clickbait", "tweeteval_irony", "casie_triggers"]


@pytest.fixture(scope="module")
def github() -> Iterator[Web]:
    """The mirror's files under the addresses of those specs."""
    with serving() as web, pytest.MonkeyPatch.context() as patch:
        patch.setenv(VIA, web.url)
        for name in REALLY:
            for fetch in spec_of(name).fetch:
                web.files[f"/{fetch.url.partition('://')[2]}"] = upstream(fetch, folder_of(name))
        yield web


def upstream(fetch: Fetch, folder: Path) -> bytes:
    if fetch.folder is not None:
        return archive(fetch, folder)
    if fetch.unpack:
        return gzip.compress((folder / fetch.name.removesuffix(".gz")).read_bytes(), 1)
    return (folder / fetch.name).read_bytes()


def archive(fetch: Fetch, folder: Path) -> bytes:
    """As GitHub packs a commit: all in one folder, with links and files that no spec reads."""
    buffer = io.BytesIO()
    top = (fetch.folder or "").replace("*", "name-0123456")
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as tar:
        link = tarfile.TarInfo("name-0123456/latest")
        link.type, link.linkname = tarfile.SYMTYPE, "elsewhere"
        tar.addfile(link)
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                tar.add(path, f"{top}/{path.relative_to(folder).as_posix()}")
    return buffer.getvalue()


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_datasets_are_ingested_without_a_mirror(github: Web, tmp_path: Path) -> None:
    manifests = ingest(REALLY, specs=SPECS, data=None, root=tmp_path)
    for name, manifest in zip(REALLY, manifests, strict=True):
        found, measured = Counter[str](), Counter[str]()
        for of in manifest.splits:
            found[of.split] += of.kept + of.rejected
        for entry, count in zip(spec_of(name).files, COUNTS[name]["records"], strict=True):
            measured[entry.split] += count
        assert found == measured, name
    asked = len(github.requests)
    assert asked == len({fetch.url for name in REALLY for fetch in spec_of(name).fetch})
    ingest(REALLY, specs=SPECS, data=None, root=tmp_path)
    assert len(github.requests) == asked


def test_a_commit_in_the_address_is_a_pin(github: Web, tmp_path: Path) -> None:
    """The files that the mirror has a part of are not pinned by content, and nothing is to be done about it."""
    done = CliRunner().invoke(app, ["fetch", "goemotions", "--root", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "goemotions: https://raw.githubusercontent.com/" in done.output
    assert "not pinned" not in done.output


def test_an_archive_that_is_pinned_by_its_files_is_known_by_them(github: Web, tmp_path: Path) -> None:
    spec = spec_of("tweeteval_irony")
    [fetched] = fill(spec, tmp_path, SPECS, lambda *_: None).values()
    assert fetched.blake3 == spec.fetch[0].blake3
    assert {*fetched.files} == {path for path in fetched.files if path.endswith(("_text.txt", "_labels.txt"))}


def test_without_a_network_and_a_mirror_one_sentence_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resume, "FIRST_WAIT", 0.001)
    monkeypatch.setenv(VIA, "http://127.0.0.1:9")
    with pytest.raises(UserError) as failed:
        ingest(["trec"], specs=SPECS, data=None, root=tmp_path)
    [said] = str(failed.value).splitlines()
    assert "raw.githubusercontent.com/harvardnlp" in said and "Connection refused" in said
    assert "name a mirror that has the files with --data (UBERT_DATA)" in said
