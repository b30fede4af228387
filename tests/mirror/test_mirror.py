"""The mirror of a dataset: filled once, verified, and never changed when its source changes."""

from __future__ import annotations

import fcntl
import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from blake3 import blake3
from pydantic import ValidationError
from typer.testing import CliRunner
from web import Web, serving
from worlds import World, numbers

from pipelines.cli.commands import app
from pipelines.ingest.ingest import ingest
from pipelines.mirror import STAGING, fill, resume
from pipelines.mirror.fetch import fetch
from pipelines.mirror.record import RECORD
from pipelines.specs import dataset_spec
from ubert.schema.errors import UserError
from ubert.schema.specs.fetch import Fetch

ROWS = numbers(range(20)).encode()
OF_HUB: list[dict[str, Any]] = [{"revision": "v1"}, {"splits": ["test"]}]


def pin(content: bytes) -> str:
    return blake3(content).hexdigest()


def zipped(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in files.items():
            file.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def tarred(level: int = 9, **files: bytes) -> bytes:
    """The archive of a commit: all in one folder, and a link among it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=level) as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(f"name-0a1b2c/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        link = tarfile.TarInfo("name-0a1b2c/link")
        link.type, link.linkname = tarfile.SYMTYPE, "data/train.jsonl"
        tar.addfile(link)
    return buffer.getvalue()


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setattr(resume, "FIRST_WAIT", 0.01)
    with serving() as web:
        web.files["/train.jsonl"] = ROWS
        yield web


class Mirror(World):
    """A world whose dataset is fetched."""

    def wants(self, *fetch: dict[str, Any], path: str = "train.jsonl") -> None:
        self.spec(fetch=list(fetch), files=[{"split": "train", "path": path}])

    def fill(self) -> dict[str, Any]:
        return fill(dataset_spec("toy", self.specs), self.data / "toy", self.specs, lambda *_: None, hashed=True)

    def files(self) -> dict[str, bytes]:
        folder = self.data / "toy"
        return {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file() and not path.name.startswith(".fetch")
        }

    @property
    def record(self) -> Path:
        return self.data / "toy" / RECORD


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    return Mirror(tmp_path)


def test_what_is_fetched_is_recorded_and_not_fetched_again(mirror: Mirror, web: Web) -> None:
    web.tags["/train.jsonl"] = '"one"'
    mirror.wants({"url": f"{web.url}/train.jsonl", "blake3": pin(ROWS)})
    mirror.fill()
    [entry] = json.loads(mirror.record.read_text()).values()
    assert entry["blake3"] == pin(ROWS)
    assert entry["origins"] == {"train.jsonl": {"size": len(ROWS), "etag": '"one"', "last_modified": None}}
    assert mirror.files() == {"train.jsonl": ROWS}
    assert not (mirror.data / "toy" / ".fetching").exists()
    mirror.fill()
    assert len(web.requests) == 1


def test_a_wrong_checksum_says_what_was_expected_what_came_and_what_to_do(mirror: Mirror, web: Web) -> None:
    web.tags["/train.jsonl"] = '"new"'
    mirror.wants({"url": f"{web.url}/train.jsonl", "blake3": pin(b"other")})
    with pytest.raises(UserError) as failed:
        mirror.fill()
    for said in (f"{web.url}/train.jsonl", pin(b"other"), pin(ROWS), f"{len(ROWS):,} bytes", 'ETag "new"'):
        assert said in str(failed.value)
    assert f"put `blake3: {pin(ROWS)}` into the spec" in str(failed.value)
    assert mirror.files() == {}
    mirror.wants({"url": f"{web.url}/train.jsonl", "blake3": pin(ROWS)})
    mirror.fill()
    assert mirror.files() == {"train.jsonl": ROWS}


def test_without_a_pin_the_first_content_is_the_pin(mirror: Mirror, web: Web) -> None:
    web.tags["/train.jsonl"], web.headers["Last-Modified"] = '"one"', "Sat, 01 Aug 2026 10:00:00 GMT"
    mirror.wants({"url": f"{web.url}/train.jsonl"})
    mirror.fill()
    changed = numbers(range(21)).encode()
    web.files["/train.jsonl"], web.tags["/train.jsonl"] = changed, '"two"'
    (mirror.data / "toy" / "train.jsonl").unlink()
    with pytest.raises(UserError, match=r"changed since 20\d\d-") as failed:
        mirror.fill()
    for said in (pin(ROWS), pin(changed), 'ETag "one"', 'ETag "two"', f"{len(ROWS):,} bytes", "01 Aug 2026"):
        assert said in str(failed.value)
    # The change is meant: the pin says so.
    mirror.wants({"url": f"{web.url}/train.jsonl", "blake3": pin(changed)})
    mirror.fill()
    assert mirror.files() == {"train.jsonl": changed}


def test_content_that_is_not_pinned_is_reported_with_what_was_there_before(mirror: Mirror, web: Web) -> None:
    mirror.wants({"url": f"{web.url}/train.jsonl"})
    mirror.fill()
    web.files["/train.jsonl"] = b"third"
    mirror.wants({"url": f"{web.url}/train.jsonl", "blake3": pin(b"other")})
    told = rf"pinned: expected blake3 {pin(b'other')}, got {pin(b'third')} .*on 20\S+ it was {pin(ROWS)} "
    with pytest.raises(UserError, match=told):
        mirror.fill()
    assert mirror.files() == {"train.jsonl": ROWS}


def test_an_earlier_file_put_there_by_hand_cures_a_changed_source(mirror: Mirror, web: Web) -> None:
    mirror.wants({"url": f"{web.url}/train.jsonl", "blake3": pin(b"earlier")})
    with pytest.raises(UserError, match=r"put the earlier file as .*toy/train.jsonl"):
        mirror.fill()
    mirror.source(b"earlier")
    mirror.fill()
    assert len(web.requests) == 1


def test_a_file_that_is_changed_in_the_mirror_is_an_error(mirror: Mirror, web: Web) -> None:
    mirror.wants({"url": f"{web.url}/train.jsonl"})
    mirror.fill()
    path = mirror.source(ROWS[:-1] + b" ")
    with pytest.raises(UserError, match=f"{path}: changed since it was fetched .* delete it"):
        mirror.fill()
    path.unlink()
    mirror.fill()
    assert mirror.files() == {"train.jsonl": ROWS}


def test_files_of_others_are_used_as_they_are(mirror: Mirror, web: Web) -> None:
    mirror.wants({"url": f"{web.url}/train.jsonl", "blake3": pin(b"not these")})
    mirror.source(ROWS)
    assert mirror.fill() == {}
    assert not web.requests
    assert not mirror.record.exists()


def test_a_folder_that_lacks_one_file_is_filled(mirror: Mirror, web: Web) -> None:
    web.files["/test.jsonl"] = b"{}\n"
    names = ("train", "test")
    files = [{"split": name, "path": f"{name}.jsonl"} for name in names]
    mirror.spec(fetch=[{"url": f"{web.url}/{name}.jsonl"} for name in names], files=files)
    mirror.source(ROWS)
    assert len(mirror.fill()) == 2
    assert mirror.files() == {"train.jsonl": ROWS, "test.jsonl": b"{}\n"}
    assert len(web.requests) == 1, "what is here is not fetched"


def test_a_failed_fetch_leaves_a_folder_that_was_filled_by_hand(mirror: Mirror, web: Web) -> None:
    web.files["/info.txt"] = b"info"
    fetched = [{"url": f"{web.url}/info.txt"}, {"url": f"{web.url}/gone.tar.gz", "folder": "*"}]
    train, test = ({"split": name, "path": f"{name}.jsonl"} for name in ("train", "test"))
    mirror.source(ROWS)
    mirror.source(b"info", "info.txt")
    for files in ([train], [train, test], [train]):
        mirror.spec(fetch=fetched, files=files)
        if test in files:
            with pytest.raises(UserError, match="404"):
                mirror.fill()
        else:
            assert mirror.fill() == {}
    mirror.spec(fetch=fetched, files=[train, test])
    mirror.source(b"{}\n", "test.jsonl")
    assert mirror.fill() == {}


def test_half_an_archive_is_not_taken_for_a_whole_one(
    mirror: Mirror, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A glob would be content with the first of two members."""
    web.files["/a.tar.gz"] = tarred(**{"a.jsonl": ROWS, "b.jsonl": ROWS})
    mirror.wants({"url": f"{web.url}/a.tar.gz", "folder": "*", "only": ["*.jsonl"]}, path="*.jsonl")
    replace, moved = Path.replace, list[str]()

    def killed_at_the_second(path: Path, target: Path) -> Path:
        if target.suffix == ".jsonl":
            moved.append(target.name)
            if len(moved) == 2:
                raise KeyboardInterrupt
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", killed_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        mirror.fill()
    assert mirror.files().keys() == {"a.jsonl"}
    mirror.fill()
    assert mirror.files().keys() == {"a.jsonl", "b.jsonl"}


def test_a_change_that_keeps_size_and_time_is_found_by_the_hash(mirror: Mirror, web: Web) -> None:
    mirror.wants({"url": f"{web.url}/train.jsonl"})
    mirror.fill()
    path = mirror.data / "toy" / "train.jsonl"
    before = path.stat()
    path.write_bytes(ROWS[::-1])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert len(fill(dataset_spec("toy", mirror.specs), path.parent, mirror.specs, lambda *_: None)) == 1
    with pytest.raises(UserError, match="changed since it was fetched"):
        mirror.fill()


def test_how_far_a_download_is_counts_all_its_files(mirror: Mirror, web: Web, tmp_path: Path) -> None:
    folder, url = tmp_path / "elsewhere", f"{web.url}/train.jsonl"
    folder.mkdir()
    for name, content in (("a", b"12345"), ("b", b"1234567"), ("c", b"12")):
        (folder / name).write_bytes(content)
    mirror.wants({"url": url}, {"url": f"{folder}/"})
    shown: list[tuple[str, int, int | None]] = []
    fill(dataset_spec("toy", mirror.specs), mirror.data / "toy", mirror.specs, lambda *at: shown.append(at))
    of_folder = [(f"{folder}/", here, None) for here in (5, 12, 14)]
    assert shown[-4:] == [(url, len(ROWS), len(ROWS)), *of_folder]


def test_half_a_mirror_is_not_taken_for_a_whole_one(mirror: Mirror, web: Web) -> None:
    """A glob would be content with the first of two downloads."""
    web.files["/test.jsonl"] = b"{}\n"
    mirror.wants({"url": f"{web.url}/train.jsonl"}, {"url": f"{web.url}/test.jsonl"}, path="*.jsonl")
    web.faults = [None, 404]
    with pytest.raises(UserError, match="404"):
        mirror.fill()
    assert mirror.files().keys() == {"train.jsonl"}
    mirror.fill()
    assert mirror.files().keys() == {"train.jsonl", "test.jsonl"}
    assert len(web.requests) == 3


def test_a_killed_download_resumes(mirror: Mirror, web: Web) -> None:
    web.files["/train.jsonl"] = body = os.urandom(3 << 20)
    web.tags["/train.jsonl"] = '"one"'
    mirror.wants({"url": f"{web.url}/train.jsonl", "blake3": pin(body)})
    web.faults = [("stall", 2 << 20)]
    command = [sys.executable, "-m", "pipelines.cli", "fetch", "toy"]
    where = ["--specs", str(mirror.specs), "--data", str(mirror.data)]
    process = subprocess.Popen([*command, *where], cwd=Path(__file__).parents[2])
    staging = mirror.data / "toy" / ".fetching"
    while not any(path.stat().st_size == 2 << 20 for path in staging.rglob("*") if path.is_file()):
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert not (mirror.data / "toy" / "train.jsonl").exists()
    mirror.fill()
    assert web.requests[-1]["Range"] == f"bytes={2 << 20}-"
    assert mirror.files() == {"train.jsonl": body}


def test_two_at_once_do_not_mix(mirror: Mirror, web: Web) -> None:
    mirror.wants({"url": f"{web.url}/train.jsonl"})
    lock = mirror.source(b"", ".fetching.lock")
    with lock.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another process is fetching into it"):
            mirror.fill()
    mirror.fill()
    assert mirror.files() == {"train.jsonl": ROWS}


def test_an_archive_is_unpacked_beside_itself_and_stays(mirror: Mirror, web: Web) -> None:
    archive = zipped(**{"train.jsonl": ROWS, "more/info.txt": b"info"})
    web.files["/a.zip"] = archive
    mirror.wants({"url": f"{web.url}/a.zip", "blake3": pin(archive), "unpack": True, "into": "raw/a.zip"})
    mirror.fill()
    assert mirror.files() == {"raw/a.zip": archive, "raw/train.jsonl": ROWS, "raw/more/info.txt": b"info"}
    (mirror.data / "toy/raw/train.jsonl").unlink()
    mirror.fill()  # from the archive that is here
    assert mirror.files()["raw/train.jsonl"] == ROWS
    assert len(web.requests) == 1


def test_members_that_a_killed_run_left_are_unpacked_again(
    mirror: Mirror, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    web.files["/a.zip"] = archive = zipped(a=b"1", b=b"2")
    mirror.wants({"url": f"{web.url}/a.zip", "blake3": pin(archive), "unpack": True}, path="b")
    with monkeypatch.context() as killed:
        killed.setattr("pipelines.mirror.shutil.rmtree", lambda *_, **__: None)
        killed.setattr("pipelines.mirror.place", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            mirror.fill()
    assert len([*mirror.data.rglob(".fetching/*/members/*")]) == 2
    mirror.fill()
    assert mirror.files() == {"a.zip": archive, "a": b"1", "b": b"2"}
    assert len(web.requests) == 1


def test_a_new_archive_replaces_the_members_of_the_old_one(mirror: Mirror, web: Web) -> None:
    old, new = zipped(a=b"1", b=b"2"), zipped(b=b"3", c=b"4")
    for archive in (old, new):
        web.files["/a.zip"] = archive
        mirror.wants({"url": f"{web.url}/a.zip", "blake3": pin(archive), "unpack": True}, path="b")
        mirror.fill()
    assert mirror.files() == {"a.zip": new, "b": b"3", "c": b"4"}


@pytest.mark.parametrize("pinned", [False, True])
def test_a_new_address_replaces_the_file_of_the_old_one(mirror: Mirror, web: Web, pinned: bool) -> None:
    contents = {f"/{commit * 20}/train.jsonl": content for commit, content in (("0a", b"old"), ("1b", ROWS))}
    web.files |= contents
    for path, content in contents.items():
        mirror.wants({"url": web.url + path} | ({"blake3": pin(content)} if pinned else {}))
        mirror.fill()
        assert mirror.files() == {"train.jsonl": content}
        assert json.loads(mirror.record.read_text()).keys() == {web.url + path}
    said = list(fetch(["toy"], specs=mirror.specs, data=mirror.data, root=mirror.root, upstream=True))
    assert "unchanged at the source" in said[0]


def test_a_new_address_of_the_content_that_is_pinned_is_not_fetched(mirror: Mirror, web: Web) -> None:
    for url in (f"{web.url}/train.jsonl", f"{web.url}/moved/train.jsonl"):
        mirror.wants({"url": url, "blake3": pin(ROWS)})
        mirror.fill()
    assert len(web.requests) == 1


def test_a_new_address_of_an_archive_removes_the_files_that_it_dropped(mirror: Mirror, web: Web) -> None:
    web.files["/1.tar.gz"] = tarred(a=b"1", b=b"2", c=b"3", d=b"4")
    web.files["/2.tar.gz"] = tarred(a=b"1", c=b"5")
    for name in "12":
        mirror.wants({"url": f"{web.url}/{name}.tar.gz", "folder": "*", "only": ["?"]}, path="?")
        mirror.fill()
        mirror.source(b"changed", "d")
    assert mirror.files() == {"a": b"1", "c": b"5", "d": b"changed"}, "a file that was changed by hand stays"


def test_a_new_address_never_replaces_a_file_that_was_changed(mirror: Mirror, web: Web) -> None:
    web.files["/moved/train.jsonl"] = b"new"
    mirror.wants({"url": f"{web.url}/train.jsonl"})
    mirror.fill()
    mirror.source(b"mine")
    mirror.wants({"url": f"{web.url}/moved/train.jsonl"})
    with pytest.raises(UserError, match=r"toy/train.jsonl: fetching .* would overwrite it"):
        mirror.fill()
    assert mirror.files() == {"train.jsonl": b"mine"}


def test_the_downloads_of_specs_that_share_a_folder_stay(mirror: Mirror, web: Web) -> None:
    web.files |= {"/more.jsonl": b"more", "/moved/train.jsonl": b"new"}
    mirror.wants({"url": f"{web.url}/train.jsonl"})
    mirror.fill()
    mirror.wants({"url": f"{web.url}/more.jsonl"}, path="more.jsonl")
    mirror.fill()
    assert mirror.files() == {"train.jsonl": ROWS, "more.jsonl": b"more"}
    mirror.spec("other", dataset="toy", fetch=[{"url": f"{web.url}/train.jsonl"}])
    mirror.wants({"url": f"{web.url}/moved/train.jsonl"})
    with pytest.raises(UserError, match=r"toy/train.jsonl: fetching .* would overwrite it"):
        mirror.fill()
    assert mirror.files() == {"train.jsonl": ROWS, "more.jsonl": b"more"}


def test_an_archive_is_unpacked_once_the_spec_says_so(mirror: Mirror, web: Web) -> None:
    web.files["/a.zip"], web.tags["/a.zip"] = zipped(**{"train.jsonl": ROWS}), '"one"'
    for unpack in (False, True):
        mirror.wants({"url": f"{web.url}/a.zip", "unpack": unpack}, path="a.zip")
        mirror.fill()
    assert mirror.files() == {"a.zip": web.files["/a.zip"], "train.jsonl": ROWS}
    [entry] = json.loads(mirror.record.read_text()).values()
    assert entry["files"].keys() == {"a.zip", "train.jsonl"}
    assert entry["origins"]["a.zip"]["etag"] == '"one"', "as its source gave it then"
    assert len(web.requests) == 1


def test_a_member_that_another_archive_has_stays(mirror: Mirror, web: Web) -> None:
    web.files["/b.zip"] = other = zipped(y=b"2", same=b"0")
    for archive in (zipped(x=b"1", same=b"0"), zipped(z=b"3")):
        web.files["/a.zip"] = archive
        pinned = {"url": f"{web.url}/a.zip", "unpack": True, "blake3": pin(archive)}
        mirror.wants(pinned, {"url": f"{web.url}/b.zip", "unpack": True}, path="y")
        mirror.fill()
    assert mirror.files() == {"a.zip": archive, "b.zip": other, "y": b"2", "z": b"3", "same": b"0"}


def test_a_member_with_the_archives_own_name_is_refused(mirror: Mirror, web: Web) -> None:
    web.files["/a.zip"] = zipped(**{"a.zip": b"1"})
    mirror.wants({"url": f"{web.url}/a.zip", "unpack": True})
    with pytest.raises(UserError, match="a member has the archive's own name"):
        mirror.fill()
    assert mirror.files() == {}


def test_a_member_never_replaces_what_is_there(mirror: Mirror, web: Web) -> None:
    web.files["/a.zip"], web.files["/b.zip"] = zipped(x=b"1", same=b"0"), zipped(x=b"2", same=b"0")
    mirror.source(b"mine", "x")
    wanted = [{"url": f"{web.url}/{name}.zip", "unpack": True} for name in "ab"]
    mirror.wants(*wanted)
    with pytest.raises(UserError, match=r"toy/x: fetching .* would overwrite it"):
        mirror.fill()
    assert mirror.files() == {"x": b"mine"}
    (mirror.data / "toy" / "x").unlink()
    with pytest.raises(UserError, match=r"toy/x: fetching .*b.zip would overwrite it"):
        mirror.fill()
    assert mirror.files()["x"] == b"1"


def test_a_bad_archive_leaves_nothing(mirror: Mirror, web: Web) -> None:
    web.files["/a.zip"] = zipped(**{"good": b"1", "../../escaped": b"2"})
    mirror.wants({"url": f"{web.url}/a.zip", "unpack": True})
    with pytest.raises(UserError, match=r"a.zip: member '../../escaped' leads out of its folder"):
        mirror.fill()
    assert mirror.files() == {}
    assert {path.name for path in mirror.folder.iterdir()} == {"specs", "data"}
    assert not (mirror.data / "toy").exists()


COMMIT = {"data/train.jsonl": ROWS, "data/deep/info.txt": b"info", "data/run.sh": b"", "train.jsonl": b"not this"}


def test_a_folder_of_an_archive_is_kept_without_the_archive(mirror: Mirror, web: Web) -> None:
    web.files["/a.tar.gz"] = tarred(**COMMIT)
    part = {"url": f"{web.url}/a.tar.gz", "folder": "*/data", "only": ["*.jsonl", "*.txt"]}
    mirror.wants(part)
    mirror.fill()
    assert mirror.files() == {"train.jsonl": ROWS, "deep/info.txt": b"info"}
    mirror.fill()
    assert len(web.requests) == 1
    mirror.spec(fetch=[{**part, "into": "raw"}], files=[{"split": "train", "path": "raw/train.jsonl"}])
    mirror.fill()
    assert mirror.files() == {"raw/train.jsonl": ROWS, "raw/deep/info.txt": b"info"}


def test_a_folder_of_a_zip_is_kept_alone(mirror: Mirror, web: Web) -> None:
    members = {"top/": b"", "top/data/": b"", "top/data/train.jsonl": ROWS, "top/other/train.jsonl": b"not this"}
    web.files["/a.zip"] = zipped(**members)
    mirror.wants({"url": f"{web.url}/a.zip", "folder": "top/data"})
    mirror.fill()
    assert mirror.files() == {"train.jsonl": ROWS}


def test_the_files_of_an_archive_are_pinned_and_not_its_bytes(mirror: Mirror, web: Web) -> None:
    part = {"url": f"{web.url}/a.tar.gz", "folder": "*/data", "only": ["train.jsonl"], "blake3": pin(ROWS)}
    mirror.wants(part)
    for level in (1, 9):
        web.files["/a.tar.gz"] = tarred(level, **COMMIT)
        mirror.fill()
        (mirror.data / "toy/train.jsonl").unlink()
    web.files["/a.tar.gz"] = tarred(**{**COMMIT, "data/train.jsonl": ROWS[:-1]})
    with pytest.raises(UserError, match=r"a\.tar\.gz#\*/data\[train\.jsonl\]: not the content that is pinned"):
        mirror.fill()


def test_an_archive_is_asked_for_anew_where_it_is_refused(mirror: Mirror, web: Web) -> None:
    good = tarred(**COMMIT)
    mirror.wants({"url": f"{web.url}/a.tar.gz", "folder": "*/data"})
    for refused, said in (
        (good[:-20], "broken archive"),
        (tarred(**{"data/../../../x": b""}), "leads out of its folder"),
        (
            tarred(**{"other/train.jsonl": b""}),
            r"#\*/data: the archive has no such files; correct `folder` or `only`",
        ),
    ):
        web.files["/a.tar.gz"] = refused
        with pytest.raises(UserError, match=said):
            mirror.fill()
        assert not (mirror.data / "toy").exists()
    mirror.wants({"url": f"{web.url}/a.tar.gz", "folder": "*"})
    web.files["/a.tar.gz"] = good
    with pytest.raises(UserError, match="member 'name-0a1b2c/link' is a link"):
        mirror.fill()
    mirror.wants({"url": f"{web.url}/a.tar.gz", "folder": "*/data"})
    mirror.fill()
    assert mirror.files()["train.jsonl"] == ROWS


def test_a_single_gz(mirror: Mirror, web: Web) -> None:
    web.files["/train.jsonl.gz"] = gzip.compress(ROWS)
    mirror.wants({"url": f"{web.url}/train.jsonl.gz", "unpack": True})
    mirror.fill()
    assert mirror.files()["train.jsonl"] == ROWS


def test_local_files_and_folders_are_copied(mirror: Mirror, tmp_path: Path) -> None:
    source = tmp_path / "elsewhere"
    (source / "deep").mkdir(parents=True)
    (source / "train.jsonl").write_bytes(ROWS)
    (source / "deep" / "b").write_bytes(b"2")
    for url in ("../elsewhere/", f"file:{source}/", f"file://{source}/"):
        mirror.wants({"url": url}, path="raw/train.jsonl")
        mirror.spec(fetch=[{"url": url, "into": "raw"}], files=[{"split": "train", "path": "raw/train.jsonl"}])
        mirror.fill()
        assert mirror.files() == {"raw/train.jsonl": ROWS, "raw/deep/b": b"2"}
    (source / "deep" / "b").write_bytes(b"3")
    (source / "c").write_bytes(b"3")
    (mirror.data / "toy/raw/deep/b").unlink()
    with pytest.raises(UserError, match=r"changed: deep/b \(1\); new: c \(1\)"):
        mirror.fill()
    mirror.wants({"url": "../elsewhere"})
    with pytest.raises(UserError, match="ends in `/`"):
        mirror.fill()


def test_what_changed_in_a_folder_is_counted_and_five_are_named(mirror: Mirror, tmp_path: Path) -> None:
    source = tmp_path / "elsewhere"
    source.mkdir()
    for name in "abc":
        (source / name).write_text(name)
    mirror.wants({"url": "../elsewhere/"}, path="a")
    mirror.fill()
    (source / "a").unlink()
    for name in "bzyxwvu":
        (source / name).write_text("new")
    (mirror.data / "toy" / "c").unlink()
    with pytest.raises(UserError, match=r"; changed: b \(1\); new: u, v, w, x, y \(6\); removed: a \(1\); "):
        mirror.fill()


def test_a_mirror_that_cannot_be_written_works_when_it_is_whole(mirror: Mirror, web: Web) -> None:
    mirror.wants({"url": f"{web.url}/train.jsonl"})
    mirror.fill()
    before = {path: path.stat().st_mtime_ns for path in mirror.data.rglob("*")}
    os.utime(mirror.data / "toy" / "train.jsonl", (1, 1))  # as a copy has it
    mirror.fill()
    after = {path: path.stat().st_mtime_ns for path in mirror.data.rglob("*")}
    assert {path for path in before if before[path] != after[path]} == {mirror.data / "toy" / "train.jsonl"}


def test_a_mirror_that_cannot_be_written_gives_one_clear_error(mirror: Mirror, web: Web) -> None:
    mirror.wants({"url": f"{web.url}/train.jsonl"})
    mirror.data.parent.mkdir(exist_ok=True)
    mirror.data.write_text("a file where the folder should be")
    with pytest.raises(UserError, match=r"need a mirror that can be read, and written .* --data \(UBERT_DATA\)"):
        mirror.fill()


def test_a_broken_record_gives_one_clear_error(mirror: Mirror, web: Web) -> None:
    mirror.wants({"url": f"{web.url}/train.jsonl"})
    mirror.fill()
    mirror.record.write_text('{"x": 1}')
    with pytest.raises(UserError, match=r"\.fetched\.json: x: .*delete this file"):
        mirror.fill()
    mirror.record.unlink()
    assert mirror.fill() == {}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"url": "ftp://host/a"}, "expected a local path or one of http:"),
        ({"url": "https://me:secret@host/a"}, "netrc"),
        ({"url": "s3://bucket"}, "s3://bucket/key"),
        ({"url": "https://host/a", "into": "../a"}, "inside the dataset's folder"),
        ({"url": "https://host/a", "into": "/a"}, "inside the dataset's folder"),
        ({"url": "https://host/.."}, "inside the dataset's folder"),
        ({"url": "https://host/"}, "give one with `into`"),
        ({"url": "https://host/a.txt", "unpack": True}, "does not have an archive's file extension"),
        ({"url": "https://host/a.txt", "config": "c"}, "apply only to hf: addresses"),
        ({"url": "https://host/a.txt", "blake3": "0"}, "blake3"),
        ({"url": "https://host/a.txt", "checksum": "0"}, "checksum"),
        ({"url": "hf://"}, "address"),
        ({"url": "https://host/a.zip", "only": ["*"]}, "`only` needs `folder`"),
        (
            {"url": "https://host/a.gz", "folder": "*"},
            "`folder` needs an archive, and 'https://host/a.gz' has none",
        ),
        ({"url": "https://host/a.zip", "folder": "*", "unpack": True}, "remove `unpack`"),
        *(({"url": "https://host/a", **given}, "apply only to hf: addresses") for given in OF_HUB),
        ({"url": "https:///"}, "an address after the scheme"),
        ({"url": "s3://bucket/"}, "s3://bucket/key"),
        ({"url": "s3://bucket/a/", "into": "a.zip", "unpack": True}, "does not have an archive's file extension"),
        ({"url": "https://host/a.zip", "into": "a", "unpack": True}, "does not have an archive's file extension"),
        *(({"url": "https://host/a", "into": into}, "inside the") for into in ("a//b", "a/./b", "a\\b", "a\0")),
    ],
)
def test_a_wrong_fetch_gives_one_clear_error(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as failed:
        Fetch.model_validate(wrong)
    assert said in str(failed.value)


def test_a_source_is_fetched_once(mirror: Mirror) -> None:
    mirror.wants({"url": "https://host/a", "into": "a"}, {"url": "https://host/a", "into": "b"})
    with pytest.raises(UserError, match="fetch: fetched twice: https://host/a"):
        mirror.fill()


COMMIT_URL = f"https://host/{'0a' * 20}/a.tgz"


@pytest.mark.parametrize(
    ("given", "scheme", "many", "name", "pinned", "part"),
    [
        ({"url": "https://host/d/a.zip?v=1#x"}, "https", False, "a.zip", False, ""),
        ({"url": "http://host/a.txt", "into": "b/c"}, "http", False, "b/c", False, ""),
        ({"url": "https://host/me@work/b.TAR.GZ", "unpack": True}, "https", False, "b.TAR.GZ", False, ""),
        ({"url": "https://host/get?id=1", "into": "x.zip", "unpack": True}, "https", False, "x.zip", False, ""),
        ({"url": "https://host/a.ZIP", "folder": "x"}, "https", True, "", False, "#x"),
        (
            {"url": COMMIT_URL, "folder": "*/x", "only": ["a", "b"], "into": "y"},
            "https",
            True,
            "y",
            True,
            "#*/x[a,b]",
        ),
        ({"url": f"https://host/{'0a' * 20}0/a"}, "https", False, "a", False, ""),
        ({"url": "https://host/a", "blake3": "0" * 64}, "https", False, "a", True, ""),
        ({"url": "s3://bucket/data/"}, "s3", True, "", False, ""),
        ({"url": "s3://bucket/data/a?b#c"}, "s3", False, "a?b#c", False, ""),
        ({"url": "hf://o/n", "config": "en", "splits": ["test", "dev"]}, "hf", True, "", False, "#en[test,dev]"),
        ({"url": "hf:folder", "revision": "v1", "into": "x"}, "hf", True, "x", False, ""),
        ({"url": "file:a.txt"}, "file", False, "a.txt", False, ""),
        ({"url": "../folder/"}, "file", True, "", False, ""),
        ({"url": "folder:a/b.csv"}, "file", False, "b.csv", False, ""),
    ],
)
def test_an_address_says_what_it_brings(
    given: dict[str, Any], scheme: str, many: bool, name: str, pinned: bool, part: str
) -> None:
    fetch = Fetch.model_validate(given)
    assert (fetch.scheme, fetch.many, fetch.name, fetch.pinned) == (scheme, many, name, pinned)
    assert fetch.source == given["url"] + part


def test_configurations_of_a_hub_dataset_are_several_sources(mirror: Mirror) -> None:
    mirror.wants(*({"url": "hf://o/n", "config": config, "into": config} for config in ("en", "de")))
    assert [fetch.source for fetch in dataset_spec("toy", mirror.specs).fetch] == ["hf://o/n#en", "hf://o/n#de"]


# the commands


def test_fetch_fills_the_mirror_of_the_store_and_says_the_line_for_the_spec(mirror: Mirror, web: Web) -> None:
    mirror.wants({"url": f"{web.url}/train.jsonl"})
    where = ["--specs", str(mirror.specs), "--root", str(mirror.root)]
    done = CliRunner().invoke(app, ["fetch", "toy", *where])
    assert done.exit_code == 0, done.output
    assert f"    blake3: {pin(ROWS)}" in done.output
    assert (mirror.root / "raw" / "toy" / "train.jsonl").read_bytes() == ROWS
    mirror.wants({"url": f"{web.url}/train.jsonl", "blake3": pin(ROWS)})
    assert "blake3:" not in CliRunner().invoke(app, ["fetch", "--all", *where]).output
    web.files[f"/{'0a' * 20}/train.jsonl"] = ROWS
    mirror.wants({"url": f"{web.url}/{'0a' * 20}/train.jsonl"})
    assert "pinned" not in CliRunner().invoke(app, ["fetch", "toy", *where]).output
    assert CliRunner().invoke(app, ["fetch", *where]).exit_code == 2


def test_fetch_counts_the_files_and_bytes_of_each_download(mirror: Mirror, web: Web) -> None:
    web.files["/a.zip"] = archive = zipped(a=b"123", b=b"45")
    pinned = {"url": f"{web.url}/a.zip", "unpack": True, "blake3": pin(archive)}
    mirror.wants(pinned, {"url": f"{web.url}/train.jsonl"})
    mirror.spec("bare")
    said = list(fetch(["toy", "bare"], specs=mirror.specs, data=mirror.data, root=mirror.root))
    assert len(said) == 5 and said[3] == f"    blake3: {pin(ROWS)}"
    assert said[0].startswith(f"toy: {web.url}/a.zip: 3 files, {len(archive) + 5:,} bytes, fetched 20")
    assert said[1].startswith(f"toy: {web.url}/train.jsonl: 1 files, {len(ROWS):,} bytes, fetched 20")
    assert said[4].startswith("bare: ")


def test_a_changed_source_is_reported_while_the_earlier_file_is_here(
    mirror: Mirror, web: Web, tmp_path: Path
) -> None:
    folder = tmp_path / "exports"
    folder.mkdir()
    (folder / "train.jsonl").write_bytes(ROWS)
    mirror.wants({"url": f"{web.url}/train.jsonl", "into": "web.jsonl"}, {"url": f"{folder}/"})
    where = ["fetch", "toy", "--specs", str(mirror.specs), "--root", str(mirror.root)]
    assert CliRunner().invoke(app, where).exit_code == 0
    same = CliRunner().invoke(app, [*where, "--upstream"])
    assert same.exit_code == 0 and same.output.count("unchanged at the source") == 2, same.output
    before = {path: path.read_bytes() for path in (mirror.root / "raw").rglob("*") if path.is_file()}
    (folder / "more.jsonl").write_bytes(ROWS)
    assert CliRunner().invoke(app, where).exit_code == 0, "what is here is whole"
    options: dict[str, Any] = {"specs": mirror.specs, "data": None, "root": mirror.root, "upstream": True}
    with pytest.raises(UserError, match=r"changed since .*; new: more.jsonl \(1\); .*keep the earlier files in"):
        list(fetch(["toy"], **options))
    web.files["/train.jsonl"], web.tags["/train.jsonl"] = ROWS + ROWS, '"two"'
    with pytest.raises(
        UserError, match=r"changed since .*ETag \"two\".*keep the earlier file as \S+/web.jsonl, which"
    ):
        list(fetch(["toy"], **options))
    assert {path: path.read_bytes() for path in (mirror.root / "raw").rglob("*") if path.is_file()} == before
    assert not list((mirror.root / "raw").rglob(STAGING))


def test_files_of_others_cannot_be_held_against_their_source(mirror: Mirror, web: Web) -> None:
    mirror.wants({"url": f"{web.url}/train.jsonl"})
    mirror.source(ROWS)
    [said] = fetch(["toy"], specs=mirror.specs, data=mirror.data, root=mirror.root, upstream=True)
    assert "were not compared with their source" in said and web.requests == []


def test_fetch_continues_after_a_failure_and_names_each(mirror: Mirror, web: Web) -> None:
    for name in ("one", "two"):
        mirror.spec(name, fetch=[{"url": f"{web.url}/{name}.jsonl"}])
    mirror.wants({"url": f"{web.url}/train.jsonl"})
    with pytest.raises(UserError, match=r"one\.jsonl: .*\n.*two\.jsonl: "):
        list(fetch(["one", "two", "toy"], specs=mirror.specs, data=None, root=mirror.root))
    assert (mirror.root / "raw" / "toy" / "train.jsonl").exists()


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_ingest_fetches_what_is_missing(mirror: Mirror, web: Web) -> None:
    mirror.wants({"url": f"{web.url}/train.jsonl"})
    for _ in range(2):
        [manifest] = ingest(["toy"], specs=mirror.specs, data=None, root=mirror.root)
        assert sum(counts.kept for counts in manifest.splits) == 20
    assert len(web.requests) == 1
