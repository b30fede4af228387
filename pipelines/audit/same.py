"""SQL expressions that decide whether two records are the same, and which of them is kept."""

from __future__ import annotations


def rank(split: str) -> str:
    """Return the rank of a split column in keeper order. Evaluation splits come first, so that a training record
    is never kept instead of an evaluation record."""
    return f"list_position(['test', 'validation', 'train'], {split})"


# The hash of the text without its pair. For leaks, the pair (a question, an aspect, another text) doesn't matter.
TEXT_HASH = "coalesce(text_hash, content_hash)"

KEEPER_ORDER = f"{rank('split')}, corpus, record_id"

# A record's rank (1, 2 or 3), corpus and id in one string, which is ordered like `KEEPER_ORDER`.
ID = f"{rank('split::VARCHAR')} || chr(31) || corpus::VARCHAR || chr(31) || record_id"


def named(id: str, prefix: str = "") -> str:
    """Return SQL for the columns of evidence that name the record of an `ID`."""
    corpus = f"split_part({id}, chr(31), 2)"
    names = [f"{prefix}_{name}" if prefix else name for name in ("corpus", "split")]
    record_id = f"{id}[len({corpus}) + 4 :] AS {prefix or 'record'}_id"
    return f"{record_id}, {corpus} AS {names[0]}, ['test', 'validation', 'train'][{id}[1]::INT] AS {names[1]}"


def place_of(id: str) -> str:
    """Return SQL for the split and corpus of an `ID`, to group by."""
    return f"split_part({id}, chr(31), 1), split_part({id}, chr(31), 2)"


# The hash of a record's prompt: the task and the candidate categories, in any order and case. If there are no
# categories, or they are the numbers of a scale, the instruction counts too. Duplicates have the same text and the
# same prompt. So two records of one sentence are not duplicates if one asks for its topic and the other for names,
# or if the scales of a sentiment differ. Two questions about one page are not duplicates, either.
ASKED = """md5_number(task || chr(30) || if(len(categories) = 0 OR task = 'regression', lower(instruction), '') ||
    array_to_string(list_sort(list_transform(categories, lambda c: concat_ws(chr(31), c.kind, lower(c.name),
        coalesce(lower(c.head), ''), coalesce(lower(c.tail), ''), coalesce(lower(c.event), '')))), chr(30)))"""
