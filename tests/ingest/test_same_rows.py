"""Corpora of the same rows: a number and a label of a row make two records, and each is counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from worlds import World

from pipelines.ingest import hashes
from pipelines.ingest.ingest import ingest

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]

# Two sentences with how alike they are and whether one follows; some rows lack one of these, or both.
ROWS = """Nº;Primera;Segunda;Sigue;Parecido
1;Llueve a cántaros.;Está mojado.;sí;3.5
2;"El niño; dormido.";El niño corre.;no;1
3;Nada.;Nada.;sí;mucho
4;Ñandúes.;Aves.;quizá;4.25
5;Uno.;Dos.;;
"""
SIMILAR = {
    "task": "regression",
    "instruction": "parecido de dos frases",
    "map": {"label": None, "value": "Parecido"},
    "categories": {"label": None, "value": [0, 1, 2, 3, 4, 5]},
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.spec(
        task="pair",
        language="es",
        format="table",
        options={"separator": ";", "quoting": "csv", "header": True},
        files=[{"split": "train", "path": "frases.csv", "encoding": "latin-1"}],
        map={"text": "Primera", "pair": "Segunda", "label": "Sigue"},
        categories={"label": {"sí": "se sigue", "no": "no se sigue"}},
        also={"toy_similar": SIMILAR},
    )
    world.source(ROWS.encode("latin-1"), "frases.csv")
    return world


def test_a_row_gives_a_record_or_a_reject_in_each_corpus(world: World) -> None:
    pairs, numbers = ingest(["toy"], specs=world.specs, data=world.data, root=world.root)
    assert [(made.name, made.task, made.dataset) for made in (pairs, numbers)] == [
        ("toy", "pair", "toy"),
        ("toy_similar", "regression", "toy"),
    ]
    for made, kept in ((pairs, 3), (numbers, 3)):
        [counts] = made.splits
        assert (counts.records, counts.kept, counts.rejected) == (5, kept, 2)
    assert [row["source"]["line"] for row in world.records()] == [2, 3, 4]
    similar = world.records("toy_similar")
    assert [(row["source"]["line"], row["value"]) for row in similar] == [(2, 3.5), (3, 1.0), (5, 4.25)]
    assert [(row["text"], row["pair"]) for row in similar[1:2]] == [("El niño; dormido.", "El niño corre.")]
    assert similar[0]["record_id"] == "toy_similar/train/frases.csv:2"
    assert [row["reason"] for row in world.rejects()] == ["unknown category"] * 2
    assert [row["reason"] for row in world.rejects("toy_similar")] == ["not a number"] * 2


def test_a_corpus_of_the_same_rows_is_made_alone_too(world: World) -> None:
    made = world.ingest("toy_similar")
    assert (made.name, made.task) == ("toy_similar", "regression")


def test_corpora_of_the_same_rows_share_what_is_known_of_their_files(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashes, "SETTLED", -60.0)
    ingest(["toy"], specs=world.specs, data=world.data, root=world.root)
    assert [path.name for path in (world.root / "sources").iterdir()] == ["toy.jsonl"]
