"""Guesses at tasks of whole texts: classification, pair, choice, regression, question answering and generation."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import permutations
from typing import Any

from pipelines.drafting.formats.columns import TAG
from pipelines.drafting.tasks.choices import OPTIONS, choices
from pipelines.drafting.tasks.fields import Field, Fields
from pipelines.drafting.tasks.flags import flagged
from pipelines.drafting.tasks.guess import Guess, called, hint
from pipelines.drafting.tasks.places import START, bases, below, is_whole, place_of
from ubert.schema.specs.mapping import unquoted

TEXT = "text sentence tweet utterance content body document review comment premise sentence1 context passage query"
LABEL = (
    "label gold_label labels class category intent sentiment emotion stance polarity topic target gold answer "
    "rating stars overall decision relation classification value type is"
)
NO_TEXT = "id idx url link path file date template templ rest"
VALUE = "score label value similarity complexity valence intensity rating relatedness gold v"
PAIRS = (
    ("premise", "hypothesis"), ("sentence1", "sentence2"), ("sentence0", "sentence1"), ("question1", "question2"),
    ("text1", "text2"), ("text_a", "text_b"), ("sentence_a", "sentence_b"), ("context", "hypothesis"),
    ("ori_sentence", "new_sentence"), ("story", "query"), ("passage", "question"), ("context", "question"),
    ("contexts", "question"), ("argument", "topic"), ("claim", "perspective"), ("body", "headline"),
    ("sentence", "question"), ("chq", "faq"), ("argument", "key_point"), ("text", "target"), ("text", "topic"),
)  # fmt: skip
WRITTEN = (
    ("document", "summary"), ("article", "highlights"), ("dialogue", "summary"), ("source", "target"),
    ("text", "title"), ("input", "output"), ("src", "tgt"), ("text", "summary"), ("body", "title"),
)  # fmt: skip


_TAGGED = re.compile(rf"(\S+[\\/_|])?({TAG.pattern}|[BIES])")  # a tag, or a word with its tag, as in Oslo/B
_PAIRED = re.compile(r"\S*[=/|]\S+")  # a word with an annotation, as in Oslo=PLACE


def texts_of(fields: Fields) -> list[Field]:
    """Return the fields that may be the text, likeliest first."""
    found = [field for field in fields.values() if field.is_text and (field.flat or _is_list_of_texts(field))]
    found = [f for f in found if f.rows >= 0.9 * f.of and not hint(f.name, NO_TEXT)]
    found = [f for f in found if not _are_annotated(f.values[:20]) and not _is_note(f)]
    if not found:  # texts of a word or two
        named = [
            f for f in fields.values() if f.flat and f.all(str) and f.rows == f.of and hint(f.name, TEXT) > 0.5
        ]
        found = [f for f in named if all(any(map(str.isalpha, value)) for value in f.values)]
    return sorted(found, key=lambda f: -(_named_text(f.name) + 0.4 * f.flat + min(f.length, 300) / 1000))


def _is_note(field: Field) -> bool:
    """Tell whether a field has the same short text in each of several rows: a note on the data."""
    return field.distinct == 1 and len(field.values) >= 8 and field.length <= 200


def _are_annotated(values: list[str]) -> bool:
    """Tell whether each word is a tag, or has an annotation."""
    words = [word for value in values for word in value.split()]
    return any(all(map(form.fullmatch, words)) for form in (_TAGGED, _PAIRED))


def _named_text(name: str) -> float:
    """Return how well a name fits a text. Columns that are named by their content, such as text2, are equal."""
    return hint("text" if re.fullmatch(r"text\d+", name) else name, TEXT)


def _is_list_of_texts(field: Field) -> bool:
    plain = field.path.endswith("[]") and field.path.count("[]") == 1 and "{" not in field.path
    return plain and sum(map(len, field.values)) / len(field.values) > 25


def labels_of(fields: Fields) -> list[tuple[Field, float]]:
    """Return the fields that may be the label, each with its likelihood."""
    found: dict[str, float] = {}
    for field in fields.values():
        if (
            not field.is_label
            or field.is_number
            or field.rows < 0.3 * field.of
            or hint(field.name, "id idx split source url pmid is_impossible")
        ):
            continue  # a field may be missing in some rows, because a split may have no labels
        named = hint(field.name, LABEL)
        few = 0.2 * (1 - math.log(field.distinct + 1) / math.log(300))
        binary = 0.05 if field.all(int, bool) and field.distinct <= 3 and named else 0
        depth = 0.03 * field.path.count(".")
        path, likely = _in_words(field, fields).path, 0.35 + 0.4 * named + few + binary - depth
        found[path] = max(likely, found.get(path, likely))
    return sorted(((fields[path], likely) for path, likely in found.items()), key=lambda item: -item[1])


def _in_words(label: Field, fields: Fields) -> Field:
    """Return the field with the names of a label's codes, such as `label_text` beside `label`, or the label."""
    if not is_whole(label):
        return label
    codes = [*map(str, label.values)]
    for field in fields.values():
        beside = field.flat and field.all(str) and not is_whole(field) and len(field.values) == len(codes)
        if beside and len({*zip(codes, field.values, strict=True)}) == field.distinct == label.distinct > 1:
            return field
    return label


def whole_texts(fields: Fields) -> Iterator[Guess]:
    texts, labels = texts_of(fields), labels_of(fields)
    yield from _questions(fields, texts)
    yield from choices(fields, texts)
    yield from _labelled(fields, texts, labels)
    yield from flagged(fields, texts)
    yield from _numbers(fields, texts)
    yield from _written(texts)
    if texts:
        text = texts[0]
        yield Guess("text", {"text": text.path}, 0.15, (f"{called(text.path)} has text",))
        return
    for tokens in [field for field in fields.values() if field.words and field.flat][:2]:
        for label, likely in labels[:2]:
            why = (_values(label), f"the text is in {called(tokens.path)}")
            yield Guess("classification", {"tokens": tokens.path, "label": label.path}, likely - 0.1, why)
        yield Guess("text", {"tokens": tokens.path}, 0.14, (f"{called(tokens.path)} has the tokens of a text",))


def _labelled(fields: Fields, texts: list[Field], labels: list[tuple[Field, float]]) -> Iterator[Guess]:
    for label, likely in labels[:4]:
        others = [text for text in texts if text.path != label.path]
        why = _values(label)
        for text, pair, named in _pairs(others, fields, label)[:3]:
            score = min(0.99, likely + (0.25 if named else 0.1 if label.distinct <= 3 else -0.1))
            yield Guess(
                "pair", _m(text.path, label, pair=pair), score, (why, f"{called(text.path, pair)} are two texts")
            )
        if others and (term := _word_of(others[0], fields)) and term.path != label.path:
            about = (why, f"{called(term.path)} has a part of {others[0].path!r}")
            yield Guess("pair", _m(others[0].path, label, pair=term.path), likely + 0.1, about)
        for place, text in enumerate(others[:2]):
            fewer = 0.12 * (len([t for t in others if t.flat]) - 1) if len(others) < 4 else 0.1
            score = likely - 0.15 * place - 0.3 * fewer
            yield Guess("classification", _m(text.path, label), score, (why, f"{called(text.path)} has text"))
        title = next((t for t in others if hint(t.name, "title headline subject") == 1 and t.flat), None)
        rest = [t for t in others if t is not title and t.flat]
        unnamed = {t.path for t in others} == {"text", "text2"} and label.distinct > 3
        if (title and rest) or unnamed:
            both = [title.path, rest[0].path] if title else ["text", "text2"]
            score = likely + 0.01 if unnamed else likely
            yield Guess("classification", _m(both, label), score, (why, f"{called(*both)} make up the text"))
    yield from _several(fields, texts)


def _values(label: Field) -> str:
    number = "1 value" if label.distinct == 1 else f"{label.distinct} values"
    return f"{called(label.path)} has {number} in {len(label.values):,} rows"


def _m(text: str | list[str], label: Field, **more: Any) -> dict[str, Any]:
    return {"text": text, **more, "label": label.path}


def _pairs(texts: list[Field], fields: Fields, label: Field) -> list[tuple[Field, str, bool]]:
    """Return possible pairs: the first text, the path of the second, and whether their names are usual."""
    by_name = {_bare(text.name): text for text in reversed(texts)}
    short = {_bare(f.name): f for f in fields.values() if f.flat and f.all(str) and f.path != label.path}
    found = []
    for first, second in PAIRS:
        a, b = by_name.get(first), by_name.get(second) or short.get(second)
        if a and b and a.path != b.path:
            found.append((a, b.path, True))
    flat = [text for text in texts if text.flat and not hint(text.name, OPTIONS)]
    for a, b in permutations(flat, 2):
        numbered = re.sub(r"(1|a)$", "", _bare(a.name)) == re.sub(r"(2|b)$", "", _bare(b.name))
        if not found and numbered and _bare(a.name)[-1:] in "1a":
            found.append((a, b.path, True))
    if not found and len(flat) >= 2:
        in_order = sorted(flat[:2], key=lambda text: list(fields).index(text.path))
        found.append((in_order[0], in_order[1].path, False))
    return found


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name).strip("_")


def _several(fields: Fields, texts: list[Field]) -> Iterator[Guess]:
    """Guess several labels for each text, from a list, or from a string with a separator."""
    if not texts:
        return
    for field in fields.values():
        named = hint(field.name, LABEL + " tags categories emotions topics")
        if words := field.words:
            if (
                field.flat
                and field.rows == field.of
                and len({w for v in words for w in v}) <= max(3, len(words) / 2)
            ):
                why = f"{called(field.path)} has a list of labels, of which there are few"
                score = 0.5 + (0.3 if _is_parallel(fields, field) else 0.4) * named
                yield Guess("multilabel", _m(texts[0].path, field), score, (why,))
        elif _is_of_mentions(fields, field):
            continue
        elif field.path.endswith("result[].value.choices[]"):
            one = len(field.values) == field.rows == field.of
            why = f"{called(field.path)} has what an annotator chose in Label Studio"
            yield Guess("classification" if one else "multilabel", _m(texts[0].path, field), 0.8, (why,))
        elif field.path.count("[]") == 1 and "{" not in field.path and field.all(str) and named:
            if field.distinct <= max(3, min(100, len(field.values) / 4)) and not field.is_text:
                why = f"{called(field.path)} has one or more labels, of which there are few"
                yield Guess("multilabel", _m(texts[0].path, field), 0.4 + 0.3 * named, (why,))
        elif field.flat and field.all(str) and field.path != texts[0].path:
            for sign in (", ", ",", "|", ";", "#"):
                parts = {part for value in field.values for part in value.split(sign)}
                some = sum(sign in value for value in field.values)
                if (
                    some >= 0.05 * len(field.values)
                    and len(parts) <= 150
                    and len(parts) < len(field.values) / 2
                    and _are_short(parts)
                ):
                    why = f"{sign!r} separates labels in {called(field.path)}"
                    score = 0.6 + 0.37 * named
                    yield Guess("multilabel", _m(texts[0].path, field, label_separator=sign), score, (why,))
                    break


def _is_of_mentions(fields: Fields, field: Field) -> bool:
    """Tell whether a field is beside the offset of a mention, so that its labels are not of the whole text."""
    beside = below(fields, field.path[: field.path.rfind("[]") + 2]) if "[]" in field.path else {}
    return any(is_whole(other) and hint(path, START) > 0.5 for path, other in beside.items())


def _is_parallel(fields: Fields, field: Field) -> bool:
    """Tell whether a list has an item for each item of another list, as labels of sentences do."""
    sizes = [*map(len, field.values)]
    others = [other for other in fields.values() if other.words and other.path != field.path]
    return max(sizes) > 1 and any([*map(len, other.values)] == sizes for other in others)


def _are_short(parts: set[str]) -> bool:
    return all(
        0 < len(part) <= 40
        and part.count(" ") <= 2
        and not part.startswith(" ")
        and part.count("(") == part.count(")")  # else the sign is within a label, as in founded(e1,e2)
        for part in parts
    )


def _numbers(fields: Fields, texts: list[Field]) -> Iterator[Guess]:
    for field in fields.values():
        if not field.flat or not field.is_number or field.rows < 0.9 * field.of or not texts:
            continue
        score = 0.45 + 0.4 * hint(field.name, VALUE)
        why = (f"{called(field.path)} has numbers with fractions",)
        others = [text for text in texts if text.path != field.path]
        if others and (word := _word_of(others[0], fields)):
            about = (*why, f"{called(word.path)} has a part of {others[0].path!r}")
            mapping = {"text": others[0].path, "pair": word.path, "value": field.path}
            yield Guess("regression", mapping, score + 0.05, about)
        for text, pair, named in _pairs(others, fields, field)[:1]:
            more = 0.12 if named or len([t for t in others if t.flat]) == 2 else 0
            yield Guess("regression", {"text": text.path, "pair": pair, "value": field.path}, score + more, why)
        if others:
            yield Guess("regression", {"text": others[0].path, "value": field.path}, score, why)


def _word_of(text: Field, fields: Fields) -> Field | None:
    """Return the field of the word or phrase in the text that the value describes."""
    about = [f for f in fields.values() if f.flat and f.all(str) and hint(f.name, "token word phrase target term")]
    for field in about:
        both = list(zip(field.values, text.values, strict=False))
        if field.rows == text.rows and sum(word in value for word, value in both) >= 0.95 * len(both):
            return field
    return None


def _questions(fields: Fields, texts: list[Field]) -> Iterator[Guess]:
    """Guess questions that are answered by words of a text."""
    questions = [
        f
        for f in fields.values()
        if f.flat and f.all(str) and hint(f.name, "question question_text query_text query") >= 0.4
    ]
    contexts = [
        text
        for text in texts
        if text.flat
        and text not in questions
        and (text.length > 60 or hint(text.name, "context passage paragraph"))
    ]
    contexts = contexts or _dialogues(fields)
    if not questions or not contexts:
        return
    text, question = contexts[0].path, questions[0].path
    extra = {"unanswerable": "is_impossible"} if "is_impossible" in fields else {}
    for path, field in fields.items():
        named = hint(field.name, "answers answer answer_text orig_answer_texts") and path not in (question, text)
        if named and (answers := _answer(fields, field)):
            mapping = {"text": text, "question": question, "answers": answers, **extra}
            score = 0.995 if field.all(str) else 0.95  # above that of a label, if the text has nearly all of them
            yield Guess("qa", mapping, score, (f"{called(question)} has questions, and {path!r} their answers",))


def _dialogues(fields: Fields) -> list[Field]:
    """Return the sentences or utterances that make up a text, as one of their fields."""
    parts = [field for path, field in fields.items() if re.fullmatch(r"[^\[\]{}]+\[\]\.[^\[\]{}]+", path)]
    many = [field for field in parts if field.rows == field.of and len(field.values) > 3 * field.rows]
    return sorted((f for f in many if f.is_text and hint(f.name, TEXT)), key=lambda field: -field.length)


def _answer(fields: Fields, answers: Field) -> Any:
    path = answers.path
    if f"{path}[].answer_start" in fields and f"{path}[].text" in fields:
        return path
    if f"{path}.text" in fields and f"{path}.answer_start" in fields:  # parallel lists, as on the hub
        return {"each": f"{path}.text.{{answer}}", "words": ".", "start": f"/{path}.answer_start.{{answer}}"}
    if answers.words:
        starts = [f for name in (f"{path}_start", "answer_starts", "answer_start") if (f := fields.get(name))]
        if starts and [*map(_size, starts[0].values)] == [*map(len, answers.words)]:
            return {"each": f"{path}.{{answer}}", "words": ".", "start": f"/{starts[0].path}.{{answer}}"}
        return {"each": f"{path}[]", "words": "."}
    if answers.flat and answers.all(str):
        start = next((name for name in (f"{path}_start", "answer_start") if name in fields), None)
        return {"words": path, **({"start": start} if start else {})}
    for inner in (f"{path}[]", f"{path}[][]"):
        if inner in bases(fields) and "start" in (place := place_of(below(fields, inner))):
            return {"each": inner, **place}
    return None


def _size(value: Any) -> int | None:
    return len(value) if isinstance(value, list) else None


def _written(texts: list[Field]) -> Iterator[Guess]:
    flat = {_bare(text.name): text for text in texts if text.flat}
    named = [(flat[a], flat[b]) for a, b in WRITTEN if a in flat and b in flat]
    by_parent: dict[str, list[Field]] = {}
    for text in texts:
        parent = unquoted(text.path).rpartition(".")[0]
        if text.flat and parent and re.fullmatch(r"[a-z]{2,3}(_[a-z]{2,4})?", text.name):
            by_parent.setdefault(parent, []).append(text)
    for parent, found in by_parent.items():
        if len(found) == 2 and hint(parent, "translation translations"):
            first, second = sorted(found, key=lambda field: unquoted(field.path) != f"{parent}.en")
            why = (f"{called(parent)} has one text in each of two languages",)
            yield Guess("seq2seq", {"text": first.path, "target": second.path}, 0.9, why)
    for text, target in named[:1]:
        why = (f"{called(target.path)} may be written from {text.path!r}",)
        yield Guess("seq2seq", {"text": text.path, "target": target.path}, 0.6, why)
    plain = [text for text in texts if text.flat]
    if len(plain) == 2 and not named:
        why = (f"{called(plain[1].path)} may be written from {plain[0].path!r}",)
        yield Guess("seq2seq", {"text": plain[0].path, "target": plain[1].path}, 0.2, why)
