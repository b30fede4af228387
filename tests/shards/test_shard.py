"""Shards have every member of the mixture once per copy, and list what they lack."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from handmade import (
    ENCODER,
    make_shards,
    ner,
    question,
    record,
    sentiment,
    shard_members,
    window_starts,
    write_mixture,
)
from linked import attacks
from msgspec.structs import replace
from worlds import corpus, put_corpus

from pipelines.mixtures.mix import mix
from pipelines.shards.files import CATEGORY_TOKENS
from pipelines.shards.shard import Work, missing, plan, run_unit, shard, units
from pipelines.store.store import Store
from ubert.inference.questions import INSTRUCTIONS
from ubert.loader.shards import Shards, open_shards
from ubert.model.tokenizer import load_tokenizer
from ubert.schema.errors import UserError
from ubert.schema.manifest import MANIFEST, ShardManifest, read_manifest
from ubert.schema.record import Record, Span
from ubert.schema.specs.mixture import Mixture

TOKENIZER = load_tokenizer(ENCODER)
CORPORA = {
    "people": [ner(i, i % 30) for i in range(250)],
    "questions": [question(i) for i in range(30)],
    "reviews": [sentiment(i) for i in range(30)],
}
COPIES = {"people/train/3": 4}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    return open_shards(make_shards(tmp_path_factory.mktemp("store"), CORPORA, copies=COPIES, max_tokens=32))


def words(shards: Shards, row: int) -> list[tuple[str, str]]:
    """Return (category, mention) of a row's gold cells, found through the tokens."""
    example, by_id = shards.example(row), {r.record_id: r for records in CORPORA.values() for r in records}
    item = by_id[shards.record_id(row)]
    [encoding] = TOKENIZER.encode([item.text])
    start = window_starts(shards)[row]
    assert encoding.ids[start : start + len(example.text)].tolist() == example.text.tolist()
    names = [category.name for category in item.categories]
    return [
        (names[c], item.text[encoding.starts[start + a] : encoding.ends[start + b]])
        for c, a, b in example.gold_cells.tolist()
    ]


def test_every_record_is_there_with_its_words(shards: Shards) -> None:
    of_record: dict[str, set[tuple[str, str]]] = {}
    for row in range(len(shards)):
        of_record.setdefault(shards.record_id(row), set()).update(words(shards, row))
    expected = {
        item.record_id: {(item.categories[s.category or 0].name, item.text[s.start : s.end]) for s in item.spans}
        for records in CORPORA.values()
        for item in records
    }
    assert of_record == expected
    assert max(len(shards.example(row).text) for row in range(len(shards))) == 32


def test_rows_carry_copies_prompts_and_regions(shards: Shards) -> None:
    rows = {shards.record_id(row): row for row in range(len(shards))}
    file, at = shards.find(rows["people/train/3"])
    assert file.copies[at] == 4 and sum(int(f.copies.sum()) for f in shards.files) == len(shards) + 3
    for name, item in (("people/train/3", CORPORA["people"][3]), ("questions/train/4", CORPORA["questions"][4])):
        example = shards.example(rows[name])
        texts = [item.instruction, *(category.name for category in item.categories)]
        expected = [encoding.ids.tolist() for encoding in TOKENIZER.encode(texts)]
        assert [example.instruction.tolist(), *(c.tolist() for c in example.categories)] == expected
    unanswered = shards.example(rows["questions/train/3"])
    assert unanswered.gold_anchors.tolist() == [0] and not len(unanswered.gold_cells)


def test_categories_and_prompts_are_kept_once(shards: Shards) -> None:
    manifest = shards.manifest
    assert manifest.prompts.rows == 1 + 1 + 30
    # instructions, those of their tasks in general, entities, opinions, questions
    assert manifest.categories.rows == 3 + 3 + 3 + 3 + 30
    assert sum(file.rows for file in manifest.shards) == len(shards)


def test_the_manifest_accounts_for_every_span(shards: Shards) -> None:
    for alignment in shards.manifest.alignment:
        records = CORPORA[alignment.corpus]
        assert (alignment.records, alignment.spans) == (len(records), sum(len(r.spans) for r in records))
        kept = alignment.exact + alignment.widened + alignment.narrowed
        assert kept + sum(alignment.lost.values()) == alignment.spans == alignment.exact


def losing() -> list[Record]:
    long = " and then slept" * 20
    return [
        record("odd", 0, "ner", f"Ada went{long} in Oslo", ["trip"], spans=[Span(0, 8 + len(long), 0)]),
        record("odd", 1, "ner", "ab\u200b Oslo", ["place"], spans=[Span(2, 3, 0), Span(4, 8, 0), Span(3, 8, 0)]),
        record("odd", 2, "ner", "Oslos", ["place"], spans=[Span(0, 2, 0)]),
        record("odd", 3, "classification", f"Fine{long}", ["word " * 100, "bad"], labels=[0]),
        record("odd", 4, "pair", f"Fine{long}", ["yes", "no"], labels=[0], pair=f"Good{long}"),
        record("odd", 5, "ner", "\u200b", ["place"]),
        record("odd", 6, "ner", "No categories", []),
    ]


def test_what_is_lost_is_counted_and_listed(tmp_path: Path) -> None:
    directory = make_shards(tmp_path, {"odd": losing()}, max_tokens=32)
    manifest = read_manifest(ShardManifest, directory)
    [alignment] = manifest.alignment
    assert alignment.lost == {"truncated": 1, "no token": 1, "same tokens as another": 1}
    assert (alignment.spans, alignment.exact, alignment.widened, alignment.narrowed) == (5, 1, 1, 0)
    assert (alignment.records, alignment.cut, manifest.cut_categories) == (7, 4, 1)
    listed = pq.read_table(directory / "lost.parquet").to_pylist()
    by_reason: dict[str, list[tuple[str, int | None, str]]] = {}
    for row in listed:
        by_reason.setdefault(row["reason"], []).append((row["record_id"][-1], row["span"], row["words"]))
    assert {reason: len(rows) for reason, rows in by_reason.items()} == {
        **alignment.lost,
        "text cut": 2,
        "pair cut": 1,
        "no token in the text": 1,
        "no categories": 1,
    }
    assert by_reason["same tokens as another"] == [("1", 2, " Oslo")]
    shards = open_shards(directory)
    assert {shards.record_id(row)[-1] for row in range(len(shards))} == set("01234")
    pair = shards.example(len(shards) - 1)
    assert (len(pair.text), len(pair.pair)) == (16, 16)
    assert len(shards.example(len(shards) - 2).categories[0]) == CATEGORY_TOKENS


def test_a_category_of_ten_thousand_characters_is_cut_and_counted(tmp_path: Path) -> None:
    long = "word " * 2_000
    directory = make_shards(tmp_path, {"odd": [record("odd", 0, "ner", "In Oslo", [long, "x" * 10_000])]})
    shards = open_shards(directory)
    assert shards.manifest.cut_categories == 1  # the other is one unknown token
    assert [len(category) for category in shards.example(0).categories] == [CATEGORY_TOKENS, 1]


def test_a_second_run_does_nothing_and_other_options_make_other_shards(tmp_path: Path) -> None:
    directory = make_shards(tmp_path, CORPORA, max_tokens=32)
    before = {path.name: path.stat().st_mtime_ns for path in directory.iterdir()}
    shard("made", encoder=ENCODER, max_tokens=32, root=tmp_path)
    assert {path.name: path.stat().st_mtime_ns for path in directory.iterdir()} == before
    assert make_shards(tmp_path, CORPORA, max_tokens=48) != directory
    changed = {**CORPORA, "reviews": [sentiment(i) for i in range(1, 31)]}
    assert make_shards(tmp_path, changed, max_tokens=32) != directory


def test_the_shards_asked_for_last_are_the_current_ones(tmp_path: Path) -> None:
    first = make_shards(tmp_path, {"reviews": CORPORA["reviews"]}, max_tokens=32)
    second = make_shards(tmp_path, {"reviews": CORPORA["reviews"]}, max_tokens=48)
    assert Store(tmp_path).current("shards", "made")[0] == second
    shard("made", encoder=ENCODER, max_tokens=32, root=tmp_path)
    assert Store(tmp_path).current("shards", "made")[0] == first


def done(root: Path, corpora: dict[str, list[Record]], copies: dict[str, int] | None = None) -> tuple[Path, Work]:
    """Shards of a mixture of these, and what of them had to be made."""
    before = {path: path.stat().st_ino for path in root.glob("shards/*/*/shard-*")}
    directory = make_shards(root, corpora, copies=copies, max_tokens=32)
    after = [path.stat().st_ino for path in directory.glob("shard-*")]
    reused = len([inode for inode in after if inode in before.values()])
    return directory, Work(len(after) - reused, reused)


def test_one_more_corpus_is_appended_to_the_shards_that_are_there(tmp_path: Path) -> None:
    old, _ = done(tmp_path, {name: CORPORA[name] for name in ("people", "reviews")})
    new, work = done(tmp_path, CORPORA)
    assert work == Work(made=1, reused=4)
    alone = make_shards(tmp_path / "alone", CORPORA, max_tokens=32)
    assert read_manifest(ShardManifest, new).shards == read_manifest(ShardManifest, alone).shards
    assert (new / "draws.arrow").read_bytes() == (alone / "draws.arrow").read_bytes()
    shutil.rmtree(old)
    open_shards(new)


def test_one_more_file_of_a_corpus_redoes_its_own_part(tmp_path: Path) -> None:
    done(tmp_path, {"people": CORPORA["people"][:200]})
    assert done(tmp_path, {"people": CORPORA["people"]})[1] == Work(made=1, reused=2)


def test_other_members_of_a_corpus_are_no_new_work(tmp_path: Path) -> None:
    """Half of the corpus, each record twice, then the other half: rows that aren't drawn are of no batch, and no
    report counts them."""
    ids = [item.record_id for item in CORPORA["people"]]
    done(tmp_path, CORPORA, {name: 2 * (i % 2) for i, name in enumerate(ids)})
    directory, work = done(tmp_path, CORPORA, {name: (i + 1) % 2 for i, name in enumerate(ids)})
    assert work == Work(made=0, reused=5)
    shards = open_shards(directory)
    alignment = shards.manifest.alignment[0]
    assert (alignment.corpus, alignment.records, alignment.spans) == ("people", 125, 250)
    drawn = {shards.record_id(f.first + i) for f in shards.files for i in np.flatnonzero(f.copies)}
    assert {name for name in drawn if name.startswith("people")} == set(ids[::2])


def test_of_a_corpus_hardly_drawn_from_only_members_are_tokenised(tmp_path: Path) -> None:
    few = {item.record_id: int(i % 10 == 0) for i, item in enumerate(CORPORA["people"])}
    directory, _ = done(tmp_path, {"people": CORPORA["people"]}, few)
    shards = open_shards(directory)
    assert {shards.record_id(row) for row in range(len(shards))} == {name for name, count in few.items() if count}
    assert done(tmp_path, {"people": CORPORA["people"]}, {**few, "people/train/5": 1})[1] == Work(1, 2)


def test_a_damaged_shard_is_made_again_not_passed_on(tmp_path: Path) -> None:
    old, _ = done(tmp_path, {"people": CORPORA["people"]})
    path = next(old.glob("shard-*.arrow"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    new, work = done(tmp_path, CORPORA)
    assert work == Work(made=3, reused=2)
    open_shards(new)


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_the_same_bytes_from_ray_workers_and_after_a_kill(tmp_path: Path) -> None:
    directory = make_shards(tmp_path / "one", CORPORA, copies=COPIES, max_tokens=32)
    write_mixture(tmp_path / "two", "made", CORPORA, COPIES)
    planned = plan(Store(tmp_path / "two"), "made", ENCODER, 32)
    first, second, *_ = units(planned)
    run_unit(second, ENCODER, 32)  # done before the kill
    shutil.copy(second.lost, first.lost)  # half done when it came
    (planned.directory / ".tmp-1-shard").write_bytes(b"half")
    works: list[Work] = []
    manifest = shard("made", encoder=ENCODER, max_tokens=32, root=tmp_path / "two", report=works.append)
    assert works == [Work(made=4, reused=1)]
    expected = read_manifest(ShardManifest, directory)
    assert manifest.model_dump(exclude={"created"}) == expected.model_dump(exclude={"created"})
    names = {path.name for path in directory.iterdir()} - {MANIFEST}
    assert {path.name for path in planned.directory.iterdir()} == {*names, MANIFEST}
    for name in names:
        assert (directory / name).read_bytes() == (planned.directory / name).read_bytes()


def test_a_large_part_becomes_several_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = open_shards(make_shards(tmp_path / "one", CORPORA))
    monkeypatch.setattr("pipelines.shards.shard.CHUNK", 30)
    monkeypatch.setattr("pipelines.shards.unit.BATCH_ROWS", 60)
    several = open_shards(make_shards(tmp_path / "two", CORPORA))
    assert len([*one.files]) == len(one.manifest.shards) == len(several.manifest.shards) < len([*several.files])
    assert one.manifest.alignment == several.manifest.alignment
    assert [one.record_id(i) for i in range(len(one))] == [several.record_id(i) for i in range(len(several))]
    for row in range(0, len(one), 7):
        a, b = one.example(row), several.example(row)
        assert (
            np.array_equal(a.text, b.text)
            and np.array_equal(a.gold_cells, b.gold_cells)
            and np.array_equal(a.regions, b.regions)
        )


def test_a_mixture_that_draws_nothing_is_refused(tmp_path: Path) -> None:
    nothing = {item.record_id: 0 for item in CORPORA["reviews"]}
    with pytest.raises(UserError, match="mixture made draws no record; raise its `size`"):
        make_shards(tmp_path, {"reviews": CORPORA["reviews"]}, copies=nothing)


def test_without_a_mixture_the_command_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="ubert mix nothing"):
        shard("nothing", encoder=ENCODER, max_tokens=32, root=tmp_path)


def test_a_second_run_reports_that_every_shard_is_there(tmp_path: Path) -> None:
    make_shards(tmp_path, {"people": CORPORA["people"]}, max_tokens=32)
    works: list[Work] = []
    shard("made", encoder=ENCODER, max_tokens=32, root=tmp_path, report=works.append)
    assert works == [Work(made=0, reused=3)]


@pytest.mark.parametrize(("drawn", "rows"), [(25, 100), (24, 24)])
def test_a_part_is_tokenised_as_a_whole_if_a_quarter_of_it_is_drawn(drawn: int, rows: int, tmp_path: Path) -> None:
    reviews = [sentiment(i) for i in range(100)]
    write_mixture(
        tmp_path, "made", {"reviews": reviews}, {one.record_id: int(i < drawn) for i, one in enumerate(reviews)}
    )
    [unit] = units(plan(Store(tmp_path), "made", ENCODER, 32))
    assert run_unit(unit, ENCODER, 32) == rows
    manifest = shard("made", encoder=ENCODER, max_tokens=32, root=tmp_path)
    [file], [alignment] = manifest.shards, manifest.alignment
    assert (file.rows, manifest.draws.rows) == (rows, rows)
    assert (alignment.records, alignment.rows) == (drawn, drawn)


def test_copies_stay_with_their_records_in_small_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.shards.shard.CHUNK", 7)
    reviews = [sentiment(i) for i in range(100)]
    copies = {one.record_id: 0 for one in reviews}
    drawn = {f"reviews/train/{number}": count for count, number in enumerate((3, 8, 20, 21, 55, 99), 1)}
    shards = open_shards(make_shards(tmp_path, {"reviews": reviews}, copies=copies | drawn))
    found = {}
    for row in range(len(shards)):
        file, at = shards.find(row)
        found[shards.record_id(row)] = int(file.copies[at].sum())
    assert found == drawn


def test_records_that_are_not_drawn_lose_nothing(tmp_path: Path) -> None:
    directory = make_shards(tmp_path, {"odd": losing()}, copies={"odd/train/1": 0}, max_tokens=32)
    [alignment] = read_manifest(ShardManifest, directory).alignment
    assert (alignment.records, alignment.spans, alignment.lost, alignment.cut) == (6, 2, {"truncated": 1}, 4)
    assert "odd/train/1" not in pq.read_table(directory / "lost.parquet")["record_id"].to_pylist()


def test_the_losses_of_all_parts_are_added_up(tmp_path: Path) -> None:
    people = [ner(i) for i in range(120)]
    for number, like in ((5, 0), (110, 0), (111, 1)):
        people[number] = replace(losing()[like], record_id=f"people/train/{number}", corpus="people")
    directory = make_shards(tmp_path, {"people": people}, max_tokens=32)
    [alignment] = read_manifest(ShardManifest, directory).alignment
    assert (alignment.records, alignment.spans, alignment.exact) == (120, 117 * 2 + 5, 117 * 2 + 1)
    assert alignment.lost == {"no token": 1, "same tokens as another": 1, "truncated": 2}


def test_rows_and_tokens_of_what_is_drawn_are_counted(tmp_path: Path) -> None:
    """A shard counts all of its rows."""
    title = record("titles", 0, "seq2seq", "Fine weather in Oslo today", [], pair="in Oslo")
    title.target = "weather"
    corpora = {"people": CORPORA["people"][:40], "odd": losing()[4:5], "titles": [title]}
    copies = {one.record_id: 2 * (i % 2) for i, one in enumerate(corpora["people"])}
    shards = open_shards(make_shards(tmp_path, corpora, copies=copies, max_tokens=32))
    tokens: dict[str, list[tuple[bool, int]]] = {}
    for row in range(len(shards)):
        file, at = shards.find(row)
        count = sum(len(column[at]) for column in (file.text, file.pair, file.target))
        tokens.setdefault(shards.record_id(row).split("/")[0], []).append((bool(file.copies[at].any()), count))
    assert [(file.rows, file.tokens) for file in shards.manifest.shards] == [
        (len(rows), sum(count for _, count in rows)) for rows in tokens.values()
    ]
    drawn = {name: [count for is_drawn, count in rows if is_drawn] for name, rows in tokens.items()}
    found = {of.corpus: (of.rows, of.tokens) for of in shards.manifest.alignment}
    assert found == {name: (len(counts), sum(counts)) for name, counts in drawn.items()}
    assert found["people"][0] < len(tokens["people"]) and found["titles"] == (1, 8)


def test_a_category_of_just_as_many_tokens_as_are_kept_is_not_cut(tmp_path: Path) -> None:
    names = ["word " * CATEGORY_TOKENS, "word " * (CATEGORY_TOKENS + 1)]
    shards = open_shards(make_shards(tmp_path, {"odd": [record("odd", 0, "ner", "In Oslo", names)]}))
    assert shards.manifest.cut_categories == 1
    assert [len(category) for category in shards.example(0).categories] == [CATEGORY_TOKENS] * 2


def test_members_that_their_corpus_lacks_are_counted(tmp_path: Path) -> None:
    write_mixture(tmp_path, "made", {name: CORPORA[name] for name in ("questions", "reviews")})
    path = Store(tmp_path).current("mixtures", "made")[0] / "members.parquet"
    members = pq.read_table(path)
    rows = members.to_pylist()
    for row in rows[31:33]:
        row["record_id"] += "0000"
    pq.write_table(pa.Table.from_pylist(rows, schema=members.schema), path)
    message = "has 30 records of reviews, but 2 of them are not in the corpus; run `ubert mix made` again"
    with pytest.raises(UserError, match=message):
        units(plan(Store(tmp_path), "made", ENCODER, 32))


@pytest.mark.parametrize("damaged", [0, 1])
def test_an_undamaged_copy_of_a_shard_is_used_wherever_it_is(damaged: int, tmp_path: Path) -> None:
    reviews, questions = ({name: CORPORA[name]} for name in ("reviews", "questions"))
    folders = [done(tmp_path, corpora)[0] for corpora in (reviews, reviews | questions)]
    path = next(folders[damaged].glob("shard-reviews-*"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()  # both folders have the same file
    path.write_bytes(content)
    assert done(tmp_path, reviews | {"people": CORPORA["people"][:50]})[1] == Work(made=1, reused=1)


@pytest.mark.parametrize("kind", ["lost", "summary"])
def test_a_shard_without_its_other_files_is_made_again(kind: str, tmp_path: Path) -> None:
    reviews, questions = ({name: CORPORA[name]} for name in ("reviews", "questions"))
    next(done(tmp_path, reviews)[0].glob(f"{kind}-reviews-*")).unlink()
    directory, work = done(tmp_path, reviews | questions)
    assert work == Work(made=2, reused=0)
    open_shards(directory)


@pytest.mark.parametrize("kind", ["lost", "summary"])
def test_a_killed_run_is_completed_if_a_file_of_a_finished_part_is_gone(kind: str, tmp_path: Path) -> None:
    write_mixture(tmp_path, "made", {"reviews": CORPORA["reviews"], "questions": CORPORA["questions"]})
    first, second = units(plan(Store(tmp_path), "made", ENCODER, 32))
    for unit in (first, second):
        run_unit(unit, ENCODER, 32)
    next(first.directory.glob(f"{kind}-{first.name}.*")).unlink()
    assert missing(Store(tmp_path), [first, second]) == [first]
    open_shards(shard_members(tmp_path, "made", ENCODER, 32))


def test_shards_of_another_version_are_ignored(tmp_path: Path) -> None:
    reviews, questions = ({name: CORPORA[name]} for name in ("reviews", "questions"))
    old = done(tmp_path, reviews)[0] / MANIFEST
    old.write_text(json.dumps({**json.loads(old.read_text()), "schema_version": 1}))
    directory, work = done(tmp_path, reviews | questions)
    assert work == Work(made=2, reused=0)
    open_shards(directory)


def test_record_batches_are_filled_up_to_both_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With chunks of 30, 30, 30 and 10 records."""
    reviews = {"reviews": [sentiment(i) for i in range(100)]}
    whole = open_shards(make_shards(tmp_path / "whole", reviews))
    two = sum(len(whole.example(row).text) for row in range(60))
    monkeypatch.setattr("pipelines.shards.shard.CHUNK", 30)
    for limit, most, expected in (
        ("BATCH_ROWS", 60, [60, 40]),
        ("BATCH_ROWS", 59, [30, 30, 40]),
        ("BATCH_TOKENS", two, [60, 40]),
        ("BATCH_TOKENS", two - 1, [30, 30, 40]),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(f"pipelines.shards.unit.{limit}", most)
            shards = open_shards(make_shards(tmp_path / f"{limit}-{most}", reviews))
            assert [len(columns) for columns in shards.files] == expected


def test_paraphrases_make_other_shards_in_whatever_order_they_are(tmp_path: Path) -> None:
    write_mixture(tmp_path, "made", {"reviews": CORPORA["reviews"]})
    paraphrases = [{}, {"a": ["b", "c"], "d": ["e"]}, {"d": ["e"], "a": ["b", "c"]}, {"a": ["b"], "d": ["e"]}]
    none, one, turned, other = (plan(Store(tmp_path), "made", ENCODER, 32, of).directory for of in paraphrases)
    assert one == turned and len({none, one, other}) == 3


def test_words_of_each_kind_have_their_own_paraphrases_and_none_is_itself(tmp_path: Path) -> None:
    topic = record("topics", 0, "classification", "A text", ["good", "bad"], labels=[0])
    name = replace(record("names", 0, "ner", "A text", ["good"]), instruction=INSTRUCTIONS["ner"])
    paraphrases = {"good": ["good", "fine"], "nobody": ["no one"]}
    directory = make_shards(tmp_path, {"topics": [topic], "names": [name]}, paraphrases=paraphrases)
    rows = pa.ipc.open_file(pa.memory_map(str(directory / "categories.arrow"))).read_all().to_pylist()
    words = [(row["text"], row["kind"]) for row in rows]
    others = {word: [words[i] for i in row["others"]] for word, row in zip(words, rows, strict=True)}
    general = (INSTRUCTIONS["classification"], "instruction")
    assert {word: of_word for word, of_word in others.items() if of_word} == {
        (topic.instruction, "instruction"): [general],
        ("good", "label"): [("fine", "label")],
        ("good", "entity"): [("fine", "entity")],
    }


def test_follow_up_questions_name_the_event_after_any_instruction(tmp_path: Path) -> None:
    item = attacks()
    shards = open_shards(make_shards(tmp_path, {item.corpus: [item]}))
    assert shards.manifest.instructions == {"event": item.instruction}
    asked = [TOKENIZER.words(shards.words[i]) for i in shards.instruction_P.tolist()]
    general = [[TOKENIZER.words(shards.words[j]) for j in shards.others[i]] for i in shards.instruction_P.tolist()]
    events = ["", " : attack", " : trial"]
    assert asked == [f"{item.instruction}{event}" for event in events]
    assert general == [[f"{INSTRUCTIONS['event']}{event}"] for event in events]


def test_a_separator_parts_an_instruction_and_not_a_category(tmp_path: Path) -> None:
    one = replace(record("odd", 0, "ner", "In Oslo", ["good[SEP]bad"]), instruction="good[SEP]bad")
    example = open_shards(make_shards(tmp_path, {"odd": [one]})).example(0)
    good, bad, category = (encoding.ids.tolist() for encoding in TOKENIZER.encode(["good", "bad", "good[SEP]bad"]))
    assert example.instruction.tolist() == [*good, TOKENIZER.special.sep, *bad]
    assert example.categories[0].tolist() == category != example.instruction.tolist()


def test_two_splits_of_a_corpus_are_tokenised_once(tmp_path: Path) -> None:
    put_corpus(tmp_path, "numbers", [*corpus("numbers", 10), *corpus("numbers", 5, "test")])
    sources = [{"corpus": "numbers"}, {"corpus": "numbers", "split": "test"}]
    content = {"name": "made", "sources": sources, "leaks": "allow", "duplicates": "keep"}
    mix(Mixture.model_validate(content), root=tmp_path)
    shards = open_shards(shard_members(tmp_path, "made", ENCODER, 32))
    assert (len(shards), len(shards.manifest.shards)) == (15, 1)
    assert shards.manifest.sources == ["numbers/train", "numbers/test"]
    assert [(of.corpus, of.records, of.rows) for of in shards.manifest.alignment] == [("numbers", 15, 15)]
