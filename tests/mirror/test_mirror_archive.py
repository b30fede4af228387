"""Untrusted archives: files are unpacked inside the folder, or one clear error names what is refused."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.mirror import archive
from pipelines.mirror.archive import unpack
from ubert.schema.errors import UserError

Files = Sequence[tuple[str, bytes]]


def zip_of(files: Files) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files:
            info = zipfile.ZipInfo("x")
            info.filename = info.orig_filename = name
            file.writestr(info, content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def tar_of(files: Files) -> bytes:
    return tar_with(*((tarfile.TarInfo(name), content) for name, content in files))


def tar_with(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as file:
        for info, content in members:
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def special(name: str, kind: bytes, link: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info, b""


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """A folder to unpack in; whatever is beside it must stay as it is."""
    (tmp_path / "beside").write_text("untouched")
    (tmp_path / "room").mkdir()
    return tmp_path / "room"


def take_apart(room: Path, data: bytes, called: str) -> dict[str, str]:
    path = room.parent / "archive"
    path.write_bytes(data)
    return unpack(path, called, room / "in")


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def outside(room: Path) -> list[str]:
    return sorted(path.name for path in room.parent.iterdir())


FILES = [
    ("train.txt", b"a" * 5000),
    ("deep/er/test.txt", b""),
    ("-rf", b"an option?"),
    ("caf\u00e9 \u202e.txt", b"x"),
]


@pytest.mark.parametrize(
    ("called", "data"),
    [
        ("a.zip", zip_of(FILES)),
        ("a.tar", tar_of(FILES)),
        ("a.tar.gz", gzip.compress(tar_of(FILES))),
        ("A.TGZ", gzip.compress(tar_of(FILES))),
        ("a.tar.bz2", bz2.compress(tar_of(FILES))),
        ("a.tbz2", bz2.compress(tar_of(FILES))),
        ("a.tar.xz", lzma.compress(tar_of(FILES))),
        ("a.txz", lzma.compress(tar_of(FILES))),
    ],
)
def test_an_archive_gives_its_files_and_their_hashes(room: Path, called: str, data: bytes) -> None:
    hashes = take_apart(room, data, called)
    assert tree(room / "in") == dict(FILES)
    assert hashes == {name: blake3(content).hexdigest() for name, content in FILES}


def test_a_single_gz_gives_its_file(room: Path) -> None:
    take_apart(room, gzip.compress(b"rows"), "raw/rows.jsonl.gz")
    assert tree(room / "in") == {"rows.jsonl": b"rows"}


def test_a_leading_dot_is_no_escape_and_folders_are_made(room: Path) -> None:
    folder, _ = special("./some", tarfile.DIRTYPE)
    take_apart(
        room, tar_with((folder, b""), (tarfile.TarInfo("./some/a"), b"1"), (tarfile.TarInfo("b"), b"2")), "a.tar"
    )
    assert tree(room / "in") == {"some/a": b"1", "b": b"2"}


def test_folders_of_a_zip_are_made(room: Path) -> None:
    take_apart(room, zip_of([("d/a", b"1"), ("d/", b""), ("e/", b"")]), "a.zip")
    assert tree(room / "in") == {"d/a": b"1"} and (room / "in" / "e").is_dir()


@pytest.mark.parametrize("name", ["n" * 255, "é" * 127 + "n", "deep/.fetched.json", "ab:c", "..."])
def test_an_odd_name_that_leads_nowhere_else_is_kept(room: Path, name: str) -> None:
    take_apart(room, zip_of([(name, b"1")]), "a.zip")
    assert tree(room / "in") == {name: b"1"}


@pytest.mark.parametrize("limits", [{"RATIO": 0, "FLOOR": 100}, {"BYTES": 100}])
def test_all_members_together_have_a_limit(
    room: Path, limits: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, limit in limits.items():
        monkeypatch.setattr(archive, name, limit)
    take_apart(room, zip_of([("a", b"1" * 60), ("b", b"2" * 40)]), "a.zip")
    with pytest.raises(UserError, match=r"member 'b' .* 40 bytes"):
        unpack_anew(room, zip_of([("a", b"1" * 60), ("b", b"2" * 41)]))


BAD_NAMES = [
    "../beside",
    "a/../../beside",
    "/etc/owned",
    "//etc/owned",
    "C:/owned",
    "c:owned",
    "..\\beside",
    "a\\b",
    "a\nb",
    "a\x7fb",
    ".fetched.json",
    ".fetching/x",
    "n" * 256,
    "é" * 128,
    "..",
]


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize(("called", "make"), [("a.zip", zip_of), ("a.tar", tar_of)])
def test_a_bad_name_is_refused_and_named(
    room: Path, name: str, called: str, make: Callable[[Files], bytes]
) -> None:
    with pytest.raises(UserError) as refused:
        take_apart(room, make([("good", b"1"), (name, b"2")]), called)
    assert repr(name) in str(refused.value)
    assert "nothing was unpacked" in str(refused.value)
    assert outside(room) == ["archive", "beside", "room"]
    assert (room.parent / "beside").read_text() == "untouched"


def test_a_name_with_nul_is_refused(room: Path) -> None:
    data = zip_of([("good.txt_evil", b"1")]).replace(b"good.txt_evil", b"good.txt\0evil")
    with pytest.raises(UserError, match=r"member 'good.txt\\x00evil'"):
        take_apart(room, data, "a.zip")
    info = tarfile.TarInfo("x")
    info.pax_headers = {"path": "good\0evil"}
    with pytest.raises(UserError, match="member"):
        take_apart(room, tar_with((info, b"1")), "b.tar")


def test_a_name_that_is_not_unicode_is_refused(room: Path) -> None:
    data = tar_of([("caf\udce9", b"1")])
    with pytest.raises(UserError, match=r"member 'caf\\udce9' .*not Unicode"):
        take_apart(room, data, "a.tar")


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a", "a"),
        ("a", "a/"),
        ("a", "./a"),
        ("a", "A"),
        ("d/a", "D/b"),
        ("a", "a/b"),
        ("a/b", "a"),
        ("\u00e9", "e\u0301"),
    ],
)
@pytest.mark.parametrize(("called", "make"), [("a.zip", zip_of), ("a.tar", tar_of)])
def test_names_that_are_one_name_somewhere_are_refused(
    room: Path, first: str, second: str, called: str, make: Callable[[Files], bytes]
) -> None:
    with pytest.raises(UserError, match="member"):
        take_apart(room, make([(first, b"1"), (second, b"2")]), called)


@pytest.mark.parametrize(
    ("name", "kind", "link"),
    [
        ("link", tarfile.SYMTYPE, "../../beside"),
        ("link", tarfile.SYMTYPE, "good"),
        ("link", tarfile.LNKTYPE, "/etc/passwd"),
        ("pipe", tarfile.FIFOTYPE, ""),
        ("device", tarfile.CHRTYPE, ""),
        ("disk", tarfile.BLKTYPE, ""),
        ("sparse", tarfile.GNUTYPE_SPARSE, ""),
    ],
)
def test_links_and_devices_are_refused(room: Path, name: str, kind: bytes, link: str) -> None:
    with pytest.raises(UserError):
        take_apart(room, tar_with(special(name, kind, link), (tarfile.TarInfo(f"{name}/x"), b"through")), "a.tar")
    assert outside(room) == ["archive", "beside", "room"]
    assert not [path for path in room.rglob("*") if path.is_symlink()]
    assert (room.parent / "beside").read_text() == "untouched"


def test_a_link_in_a_zip_is_refused(room: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        info = zipfile.ZipInfo("link")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        file.writestr(info, "../beside")
        file.writestr("link/x", "through")
    with pytest.raises(UserError, match="member 'link' is a link or a device"):
        take_apart(room, buffer.getvalue(), "a.zip")


@pytest.mark.parametrize("called", ["a.zip", "a.tar.gz", "a.tar.xz", "a.gz"])
def test_a_bomb_is_refused_before_it_fills_the_disk(
    room: Path, called: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "FLOOR", 1 << 20)
    bomb = bytes(50 << 20)
    data = {
        "a.zip": lambda: zip_of([("bomb", bomb)]),
        "a.tar.gz": lambda: gzip.compress(tar_of([("bomb", bomb)])),
        "a.tar.xz": lambda: lzma.compress(tar_of([("bomb", bomb)])),
        "a.gz": lambda: gzip.compress(bomb),
    }[called]()
    with pytest.raises(UserError, match="bytes"):
        take_apart(room, data, called)
    written = sum(path.stat().st_size for path in room.rglob("*") if path.is_file())
    assert written <= (1 << 20) + archive.RATIO * len(data)


def test_a_bomb_in_a_header_is_refused(room: Path) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 1 << 40
    header = info.tobuf(tarfile.GNU_FORMAT)
    with pytest.raises(UserError, match="broken archive: a header says that it has"):
        take_apart(room, gzip.compress(header + bytes(1 << 20)), "a.tar.gz")


def test_too_many_members_are_refused(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MEMBERS", 10)
    take_apart(room, zip_of([(str(n), b"") for n in range(10)]), "a.zip")
    with pytest.raises(UserError, match="limit of 10 members"):
        unpack_anew(room, zip_of([(str(n), b"") for n in range(11)]))


def unpack_anew(room: Path, data: bytes) -> None:
    path = room.parent / "archive"
    path.write_bytes(data)
    unpack(path, "a.zip", room / "anew")


def test_an_encrypted_member_is_refused(room: Path) -> None:
    data = bytearray(zip_of([("secret", b"1")]))
    data[data.index(b"PK\1\2") + 8] |= 1
    with pytest.raises(UserError, match="member 'secret' is encrypted"):
        take_apart(room, bytes(data), "a.zip")


@pytest.mark.parametrize(
    ("called", "data"),
    [
        ("a.zip", b"<html>not found</html>"),
        ("a.tar", b"<html>not found</html>"),
        ("a.tar.gz", b"<html>not found</html>"),
        ("a.gz", b""[:0] + b"<html>"),
        ("a.tar.gz", gzip.compress(tar_of(FILES))[:-20]),
        ("a.tar", tar_of(FILES)[:3000]),
        ("a.zip", zip_of(FILES)[:-30]),
    ],
)
def test_what_is_broken_or_no_archive_gives_one_clear_error(room: Path, called: str, data: bytes) -> None:
    with pytest.raises(UserError, match=called):
        take_apart(room, data, called)


def test_a_directory_that_points_before_the_beginning_gives_one_clear_error(room: Path) -> None:
    data = bytearray(zip_of(FILES))
    data[-6:-2] = (int.from_bytes(data[-6:-2], "little") + 100_000).to_bytes(4, "little")
    with pytest.raises(UserError, match=r"a\.zip: a broken archive"):
        take_apart(room, bytes(data), "a.zip")


def test_a_broken_header_in_the_middle_is_no_end(room: Path) -> None:
    """Python's tarfile mistakes it for the end, and the other members would be lost without an error."""
    data = bytearray(tar_of([("a", b"1"), ("b", b"2"), ("c", b"3")]))
    data[1024 + 100 : 1024 + 160] = b"?" * 60
    with pytest.raises(UserError, match="header"):
        take_apart(room, bytes(data), "a.tar")


NAMES = st.text(st.sampled_from("aA./\\-~:\0\n\u00e9 C") | st.characters(codec="utf-8"), min_size=1, max_size=8)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@settings(max_examples=200)
@given(names=st.lists(NAMES | st.sampled_from(BAD_NAMES), min_size=1, max_size=5), zipped=st.booleans())
@example(names=["..."], zipped=False)
@example(names=["\0"], zipped=True)
def test_no_name_leads_out(tmp_path_factory: pytest.TempPathFactory, names: list[str], zipped: bool) -> None:
    around = tmp_path_factory.mktemp("around")
    room = around / "room"
    room.mkdir()
    files = [(name, str(number).encode()) for number, name in enumerate(names)]
    try:
        hashes = take_apart(room, zip_of(files) if zipped else tar_of(files), "a.zip" if zipped else "a.tar")
    except UserError:
        hashes = None
    assert sorted(path.name for path in around.iterdir()) == ["archive", "room"]
    assert sorted(path.name for path in room.iterdir()) in ([], ["in"])
    if hashes is not None:
        assert hashes.keys() == tree(room / "in").keys()
        assert all(
            os.path.commonpath([room / "in", (room / "in" / name).resolve()]) == str(room / "in")
            for name in hashes
        )


@settings(max_examples=300)
@given(data=st.data(), called=st.sampled_from(["a.zip", "a.tar", "a.tar.gz"]))
def test_no_bytes_break_it(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, called: str) -> None:
    room = tmp_path_factory.mktemp("around") / "room"
    room.mkdir()
    good = {"a.zip": zip_of(FILES), "a.tar": tar_of(FILES), "a.tar.gz": tar_of(FILES)}[called]
    content = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    written = bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        take_apart(room, gzip.compress(written) if called.endswith("gz") else written, called)
    except UserError as error:
        assert called in str(error)
