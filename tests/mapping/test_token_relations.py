"""Relations in columns parallel to the tokens: labels, and the numbers of the other tokens."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from test_mapping import kept, refused, spec_of

CATEGORIES = {
    "entity": {"Peop": "person", "Loc": "place"},
    "relation": [{"label": "Live_In", "name": "lives in"}, {"label": "Born_In", "name": "born in"}],
}
MAP: dict[str, Any] = {
    "tokens": "tokens",
    "tags": "tags",
    "token_relations": {"labels": "labels", "numbers": "heads", "lead_to": "tail"},
    "ignore_labels": ["N"],
}
ROW: dict[str, Any] = {
    "tokens": ["Ada", "Berg", "of", "Oslo", "or", "Bergen"],
    "tags": ["B-Peop", "I-Peop", "O", "B-Loc", "O", "B-Loc"],
    "labels": [["N"], ["Live_In", "Born_In"], ["N"], ["N"], ["N"], ["N"]],
    "heads": [[0], [3, 5], [2], [3], [4], [5]],
}


def relations(given: dict[str, Any], row: dict[str, Any]) -> list[tuple[str, str, str]]:
    record = kept(spec_of("relation", given, CATEGORIES), row)
    words = [record.text[span.start : span.end] for span in record.spans]
    return [(words[r.head], record.categories[r.category].name, words[r.tail]) for r in record.relations]


def test_a_token_represents_its_mention_and_may_have_several_relations() -> None:
    assert relations(MAP, ROW) == [("Ada Berg", "lives in", "Oslo"), ("Ada Berg", "born in", "Bergen")]


@pytest.mark.parametrize("token", [0, 1])
@pytest.mark.parametrize("number", [0, 1])
def test_any_token_of_a_mention_represents_it(token: int, number: int) -> None:
    row = {**ROW, "labels": [["N"]] * 6, "heads": [[0]] * 6}
    row["labels"][token], row["heads"][token] = ["Live_In"], [3]
    row["labels"][5], row["heads"][5] = ["Born_In"], [number]
    assert relations(MAP, row) == [("Ada Berg", "lives in", "Oslo"), ("Bergen", "born in", "Ada Berg")]


def test_numbers_may_lead_to_heads_and_count_from_one() -> None:
    turned = {**MAP["token_relations"], "lead_to": "head", "first": 1}
    row = {**ROW, "heads": [[1], [4, 6], [3], [4], [5], [6]]}
    assert relations({**MAP, "token_relations": turned}, row) == [
        ("Oslo", "lives in", "Ada Berg"),
        ("Bergen", "born in", "Ada Berg"),
    ]


def test_mentions_may_be_runs_of_tokens() -> None:
    spans = {"each": "at[]", "label": "label", "start": "start", "end": "end"}
    given = {**{key: path for key, path in MAP.items() if key != "tags"}, "spans": spans}
    at = [{"label": "Peop", "start": 0, "end": 2}, *({"label": "Loc", "start": n, "end": n + 1} for n in (3, 5))]
    assert relations({**given, "offsets": {"unit": "token"}}, {**ROW, "at": at}) == [
        ("Ada Berg", "lives in", "Oslo"),
        ("Ada Berg", "born in", "Bergen"),
    ]


def test_a_token_represents_the_mention_that_ends_with_it() -> None:
    spans = {"each": "at[]", "label": "label", "start": "start", "end": "end"}
    given = {**{key: path for key, path in MAP.items() if key != "tags"}, "spans": spans}
    at = [
        {"label": "Peop", "start": 0, "end": 3},
        *({"label": "Loc", "start": n, "end": n + 1} for n in (1, 3, 5)),
    ]
    found = relations({**given, "offsets": {"unit": "token"}}, {**ROW, "at": at})
    assert [head for head, *_ in found] == ["Berg", "Berg"]


@pytest.mark.parametrize(
    ("changes", "reason", "detail"),
    [
        ({"heads": [[0], [3, 2], [2], [3], [4], [5]]}, "dangling relation", "Born_In joins tokens 1 and 2"),
        ({"heads": [[0], [3], [2], [3], [4], [5]]}, "wrong type", "expected two lists of one length"),
        ({"heads": ["[0]", "[3]", "[2]", "[3]", "[4]", "[5]"]}, "wrong type", "`clean` reads lists"),
        ({"heads": [[0]]}, "wrong number of labels", "6 lists of labels and 1 of numbers for 6 tokens"),
        ({"tags": ["O"]}, "wrong number of tags", "1 tags for 6 tokens"),
    ],
)
def test_columns_that_do_not_fit_are_refused(changes: dict[str, Any], reason: str, detail: str) -> None:
    found = refused(spec_of("relation", MAP, CATEGORIES), {**ROW, **changes})
    assert found[0] == reason and detail in found[1], found


def test_token_relations_need_tokens() -> None:
    with pytest.raises(ValidationError, match="tags needs `tokens`: it has an entry for each token"):
        spec_of("relation", {**{k: v for k, v in MAP.items() if k != "tokens"}, "text": "t"}, CATEGORIES)


def test_tags_may_stand_beside_mentions_that_are_counted_in_tokens() -> None:
    given = {key: path for key, path in MAP.items() if key != "token_relations"}
    given["relations"] = {"each": "r[]", "label": "label", "head": {"indices": "from"}, "tail": {"indices": "to"}}
    given["offsets"] = {"unit": "token"}
    row = {**ROW, "tags": [*ROW["tags"][:4], "B-N", "B-Loc"]}
    row["r"] = [{"label": "Born_In", "from": [0, 1], "to": [5]}, {"label": "N", "from": [3], "to": [5]}]
    assert relations(given, row) == [("Ada Berg", "born in", "Bergen")]
    record = kept(spec_of("relation", given, CATEGORIES), row)
    places = [(span.start, span.end, span.category) for span in record.spans]
    assert places == [(0, 8, 0), (12, 16, 1), (20, 26, 1)]


def test_tokens_are_reported_by_their_numbers_in_the_source() -> None:
    given = {**MAP, "token_relations": {**MAP["token_relations"], "first": 1}}
    row = {**ROW, "heads": [[1], [4, 3], [3], [4], [5], [6]]}
    reason, detail = refused(spec_of("relation", given, CATEGORIES), row)
    assert reason == "dangling relation" and detail.startswith("Born_In joins tokens 2 and 3;")
