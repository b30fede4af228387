"""Annotations in columns parallel to the tokens: tags, and relations given by labels and token numbers."""

from __future__ import annotations

from bisect import bisect_left

from pipelines.mapping.annotations.gathered import Gather, Gathered, Link
from pipelines.mapping.annotations.mentions import Given
from pipelines.mapping.annotations.tags import tagged_spans
from pipelines.mapping.annotations.units import starts
from pipelines.mapping.body import Body
from pipelines.mapping.fields import as_label, list_field, words_field
from pipelines.mapping.paths import Scope
from pipelines.mapping.refused import RefusedError, short
from ubert.schema.specs.mapping import Offsets, Scheme, TokenRelations


def tagged_mentions(path: str, scheme: Scheme, offsets: Offsets, ignored: set[str]) -> Gather:
    """Return a function that gathers mentions from one tag for each token."""
    column, by_token = words_field(path), offsets.unit == "token"

    def gather(scope: Scope, body: Body, into: Gathered) -> None:
        tags = column(scope)
        if len(tags) != len(body.starts):
            raise RefusedError("wrong number of tags", f"{len(tags)} tags for {len(body.starts)} tokens")
        units = starts(body.text, offsets.unit)
        for start, end, label in tagged_spans(tags, scheme):
            if label not in ignored:
                place = (start, end) if by_token else (units[body.starts[start]], units[body.ends[end - 1]])
                into.mentions.append(Given("mention", len(into.mentions), None, label, (place,), None, None))

    return gather


def token_relations(entry: TokenRelations, offsets: Offsets, ignored: set[str]) -> Gather:
    """Return a function that gathers the relations that each token lists."""
    labels, numbers = list_field(entry.labels), list_field(entry.numbers)

    def gather(scope: Scope, body: Body, into: Gathered) -> None:
        of_tokens, leading = labels(scope), numbers(scope)
        if not len(of_tokens) == len(leading) == len(body.starts):
            detail = (
                f"{len(of_tokens)} lists of labels and {len(leading)} of numbers for {len(body.starts)} tokens"
            )
            raise RefusedError("wrong number of labels", detail)
        mention_at = _by_token(into.mentions, body, offsets)
        for token, (names, others) in enumerate(zip(of_tokens, leading, strict=True)):
            if not isinstance(names, list) or not isinstance(others, list) or len(names) != len(others):
                detail = f"token {token} has labels {short(names)} and numbers {short(others)}, expected two lists"
                raise RefusedError("wrong type", detail + " of one length; `clean` reads lists that are strings")
            for name, number in zip(map(as_label, names), others, strict=True):
                if name in ignored:
                    continue
                other = number - entry.first if type(number) is int else None
                here, there = mention_at.get(token), None if other is None else mention_at.get(other)
                if here is None or there is None:
                    both = f"{token + entry.first} and {short(number)}"
                    raise RefusedError("dangling relation", f"{name} joins tokens {both}; one is not in a mention")
                into.relations.append(Link(name, *((here, there) if entry.lead_to == "tail" else (there, here))))

    return gather


def _by_token(mentions: list[Given], body: Body, offsets: Offsets) -> dict[int, int]:
    """Map each token to a mention. One that ends with the token takes precedence over one that contains it."""
    inside: dict[int, int] = {}
    ending: dict[int, int] = {}
    units = starts(body.text, offsets.unit)
    for number, mention in enumerate(mentions):
        for start, end in mention.fragments or ():
            if offsets.unit != "token":
                start, end = (bisect_left(body.starts, bisect_left(units, place)) for place in (start, end))
            for token in range(start, end):
                inside.setdefault(token, number)
            ending.setdefault(end - 1, number)
    return {**inside, **ending}
