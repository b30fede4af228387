"""Slices of files: any allowed cut gives the rows of the whole file. Also how files are found and hashed."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.sources import RawRow, Slice, check_inside, content_hash, matches, reader
from pipelines.sources.globbing import glob
from ubert.schema.errors import UserError
from ubert.schema.record import Reject


def cuts(data: bytes, cut: str) -> list[int]:
    """Where a file may be cut: after a line, or after a blank line."""
    ends = [i + 1 for i, byte in enumerate(data) if byte == ord("\n")]
    if cut == "line":
        return ends
    return [end for end in ends if data[:end].endswith((b"\n\n", b"\n\r\n")) or data[:end] in (b"\n", b"\r\n")]


LINES = st.lists(
    st.sampled_from(["a\tb", "caf\u00e9\tO", "", "a", '{"n": 1}', "{", "\ufeff\tO", "\u2028 \tO"]), max_size=12
)


@settings(max_examples=150, deadline=None)
@given(
    written=LINES,
    end=st.sampled_from(["\n", "\r\n"]),
    encoding=st.sampled_from(["utf-8", "latin-1"]),
    form=st.sampled_from(
        [
            ("jsonl", {}),
            ("table", {"columns": ["m", "n"]}),
            ("table", {"header": True}),
            ("conll", {"columns": ["token", "tag"], "separator": "tab"}),
            ("aste", {}),
            ("blocks", {"columns": ["m", "n"]}),
            ("marked_relations", {}),
            ("text", {"record": "line"}),
            ("text", {"record": "paragraph"}),
        ]
    ),
    data=st.data(),
)
def test_any_cutting_gives_the_rows_of_the_whole_file(
    tmp_path_factory: pytest.TempPathFactory,
    written: list[str],
    end: str,
    encoding: str,
    form: tuple[str, dict[str, Any]],
    data: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("cut", numbered=True)
    name, options = form
    # Text of one encoding read in the other: some lines are rejects.
    content = end.join(written).encode(encoding, "replace")
    (folder / "x").write_bytes(content)
    module = reader(name)
    chosen = module.Options(**options)

    def rows(start: int, stop: int) -> list[RawRow | Reject]:
        line = 1 + content.count(b"\n", 0, start)
        return list(module.read(Slice(str(folder), "x", start, stop, line, "utf-8", "0" * 64), chosen))

    cut = module.split_at(chosen)
    assert cut in ("line", "blank line")
    allowed = [place for place in cuts(content, cut) if place < len(content)]
    places = sorted(data.draw(st.sets(st.sampled_from(allowed)) if allowed else st.just(set())))
    bounds = [0, *places, len(content)]
    try:
        whole = rows(0, len(content))
    except UserError:  # the header itself cannot be read
        with pytest.raises(UserError):
            rows(0, bounds[1])
        return
    assert [row for start, stop in pairwise(bounds) for row in rows(start, stop)] == whole


@pytest.mark.parametrize(
    ("form", "options", "cut"),
    [
        ("jsonl", {}, "line"),
        ("aste", {}, "line"),
        ("conll", {"columns": ["a"]}, "blank line"),
        ("conll", {"columns": ["a"], "begins": "#"}, None),
        ("text", {"record": "line"}, "line"),
        ("text", {"record": "paragraph"}, "blank line"),
        ("text", {"record": "section", "headings": ["# *"]}, None),
        *((form, {}, None) for form in ("text", "brat", "conll2012", "genia_xml", "json", "json_stream")),
        *((form, {}, None) for form in ("parquet", "pipe_spans", "squad", "xml")),
        ("parallel", {"beside": {"label": "y"}}, None),
    ],
)
def test_a_file_is_cut_only_where_a_record_ends(form: str, options: dict[str, Any], cut: str | None) -> None:
    assert reader(form).split_at(reader(form).Options(**options)) == cut


# files


def test_a_path_or_glob_finds_files_in_order_and_says_when_there_are_none(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "c.ann"):
        (tmp_path / name).touch()
    assert matches(tmp_path, "*.txt") == ["a.txt", "b.txt"]
    assert matches(tmp_path, "c.ann") == ["c.ann"]
    with pytest.raises(UserError, match=r"d\.txt: no such file"):
        matches(tmp_path, "d.txt")
    with pytest.raises(UserError, match="no such file"):
        matches(tmp_path, ".")


def test_a_glob_finds_neither_folders_nor_names_that_begin_with_a_dot(tmp_path: Path) -> None:
    for folder in ("a", "a/deep.txt", ".hidden", "b.txt"):
        (tmp_path / folder).mkdir()
    for name in ("c.txt", ".d.txt", "a/e.txt", "a/deep.txt/f.txt", ".hidden/g.txt", "a/.h.txt"):
        (tmp_path / name).touch()
    (tmp_path / "linked.txt").symlink_to(tmp_path / "c.txt")
    (tmp_path / "linked-folder.txt").symlink_to(tmp_path / "a")
    assert matches(tmp_path, "*.txt") == ["c.txt", "linked.txt"]
    assert matches(tmp_path, "**/*.txt") == ["a/deep.txt/f.txt", "a/e.txt", "c.txt", "linked.txt"]


names = st.sampled_from(["a", "b.txt", "c.ann", "a.txt", ".d", ".e.txt"])
part_of_pattern = st.sampled_from(["*", "**", "*.txt", "a*", "?", "[ab]*", "a", "nothing"])


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.lists(names, min_size=1, max_size=4), max_size=12),
    st.lists(part_of_pattern, min_size=1, max_size=4),
)
def test_a_glob_finds_what_pathlib_finds(paths: list[list[str]], parts: list[str]) -> None:
    with TemporaryDirectory() as made:
        folder = Path(made)
        for path in paths:
            with suppress(OSError):  # a file is in the way, or a folder
                folder.joinpath(*path[:-1]).mkdir(parents=True, exist_ok=True)
                folder.joinpath(*path).touch()
        there = [found.relative_to(folder) for found in folder.glob("/".join(parts)) if found.is_file()]
        expected = {path for path in there if not any(part[0] == "." for part in path.parts)}
        if parts[-1] == "**":
            expected = set()  # of folders alone, in some versions of Python
        assert set(map(Path, glob(folder, "/".join(parts)))) == expected


def test_a_file_that_a_glob_finds_in_two_ways_is_one(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    for name in ("c.txt", "a/d.txt", "a/b/e.txt"):
        (tmp_path / name).touch()
    assert matches(tmp_path, "**/**/*.txt") == ["a/b/e.txt", "a/d.txt", "c.txt"]


def test_a_link_may_lead_to_another_dataset_but_not_beside_the_mirror(tmp_path: Path) -> None:
    toy = tmp_path / "data/toy"
    for folder in ("data/toy", "data/other", "data2"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a").touch()
    (toy / "in").symlink_to("../other/a")
    (toy / "out").symlink_to("../../data2/a")
    check_inside(str(toy), "a")
    check_inside(str(toy), "in")
    with pytest.raises(UserError, match=r"toy/out: a link leads out of the mirror, to \S+/data2;"):
        check_inside(str(toy), "out")


def test_a_folder_that_cannot_be_listed_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere/: No such file or directory; \*\.txt of a spec looks for files"):
        matches(tmp_path / "nowhere", "*.txt")


def test_a_name_that_is_not_utf_8_gives_one_clear_error(tmp_path: Path) -> None:
    for name in (b"caf\xc3\xa9.txt", b"caf\xe9.txt"):
        Path(os.fsdecode(bytes(tmp_path) + b"/" + name)).touch()
    with pytest.raises(UserError, match=r"the name of the file 'caf\\udce9\.txt' is not UTF-8; rename it"):
        matches(tmp_path, "*.txt")


def test_the_hash_of_files_depends_on_names_and_bytes_alone(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"2")
    both = content_hash(tmp_path, ["a", "b"])
    assert both == content_hash(tmp_path, ["b", "a"])
    # As `b3sum` prints them: of one file its own hash, of several the hash of their listing.
    alone = {name: content_hash(tmp_path, [name]) for name in "ab"}
    assert alone["a"] == "d63bd9a826af91c1fea371965a64e11ee20f13e46b5f52c59901136605b3a487"
    assert both == blake3(f"{alone['a']}  a\n{alone['b']}  b\n".encode()).hexdigest()
    (tmp_path / "b").write_bytes(b"3")
    assert content_hash(tmp_path, ["a", "b"]) != both
    with pytest.raises(UserError, match="c: No such file"):
        content_hash(tmp_path, ["a", "c"])
