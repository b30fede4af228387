"""SQL for what makes two records the same, and which of them is kept."""

from __future__ import annotations


def rank(split: str) -> str:
    """The place of a column's split in keeper order: what evaluates is never displaced by what trains."""
    return f"list_position(['test', 'validation', 'train'], {split})"


# Of the text alone: in a leak, a pair (a question, an aspect, another text) is part of what is asked of it.
TEXT_HASH = "coalesce(text_hash, content_hash)"

KEEPER_ORDER = f"{rank('split')}, corpus, record_id"

# What is asked of a text: the task and the candidate categories, in any order and case; where there are none, or
# where they are the numbers of a scale, the instruction. Two records are the same only where the same is asked of
# the same text: topics and names of one sentence, two and five degrees of one sentiment, how positive and how calm
# a sentence is, two questions on one page are not duplicates.
ASKED = """md5_number(task || chr(30) || if(len(categories) = 0 OR task = 'regression', lower(instruction), '') ||
    array_to_string(list_sort(list_transform(categories, lambda c: concat_ws(chr(31), c.kind, lower(c.name),
        coalesce(lower(c.head), ''), coalesce(lower(c.tail), ''), coalesce(lower(c.event), '')))), chr(30)))"""
