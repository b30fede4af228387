"""What a request asks for, as candidate categories."""

from __future__ import annotations

from ubert.inference.candidates import candidates


def test_a_type_is_one_candidate_however_many_relations_join_it() -> None:
    ends = ("person", "city")
    found = candidates("relation", ["person"], {"lives in": ends, "born in": ends}, {})
    assert [category.name for category in found] == ["person", "city", "lives in", "born in"]
