"""sample_questions: paragraphs with questions, some of them unanswerable, as in SQuAD 2.0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pipelines.samples.grammar import Grammar, compile_rules, read
from pipelines.samples.scene import Scene
from pipelines.samples.world import makers
from ubert.schema.record import Split

QUESTIONS = 5  # questions of one paragraph
_TOLD = 3  # facts between the opening and the rival

Ask = tuple[str, str]  # fact, slot of the answer


class Subject(NamedTuple):
    """A subject of paragraphs: its slot, the templates of its facts, and the questions about each fact."""

    slot: str
    grammar: Grammar
    asks: dict[str, list[Ask]]

    @property
    def rival(self) -> str:
        """Return the slot of a second subject of the same kind, about which the paragraph has no facts."""
        return self.slot[:-1] + "2"


class Paragraph(NamedTuple):
    """A text, its facts, and the words and offsets of possible answers."""

    text: str
    told: list[str]
    names: dict[Ask, tuple[str, int]]  # words, offset


def writer(split: Split) -> Callable[[Scene], dict[str, Any]]:
    """Return a function that writes one paragraph with `QUESTIONS` questions, in SQuAD's format."""
    texts: dict[str, Any] = read("questions")
    words = texts.pop("words")
    subjects = [_subject(slot, facts, words, split) for slot, facts in texts.items()]

    def write(scene: Scene) -> dict[str, Any]:
        subject = scene.pick(subjects)
        paragraph = _paragraph(scene, subject)
        title = scene.cast[subject.slot]["full"]
        return {"title": title, "context": paragraph.text, "qas": _questions(scene, subject, paragraph)}

    return write


def _subject(slot: str, facts: Any, words: dict[str, str], split: Split) -> Subject:
    rules = dict(words)
    for name, fact in facts.items():
        rules[f"Tell_{name}"] = fact["tell"]
        rules.update({f"Ask_{name}_{asked}": lines for asked, lines in fact["ask"].items()})
    asks = {name: [(name, asked) for asked in fact["ask"]] for name, fact in facts.items()}
    return Subject(slot, compile_rules(rules, makers(split), split), asks)


def _paragraph(scene: Scene, subject: Subject) -> Paragraph:
    left = [fact for fact in subject.asks if fact not in ("opening", "rival")]
    told = ["opening", *(left.pop(scene.draw(len(left))) for _ in range(_TOLD)), "rival"]
    names: dict[Ask, tuple[str, int]] = {}
    text = ""
    for fact in told:
        sentence, marks = scene.write(subject.grammar[f"Tell_{fact}"])
        text += " " if text else ""
        for slot, start, end in marks:
            names.setdefault((fact, slot), (sentence[start:end], len(text) + start))
        text += sentence
    return Paragraph(text, told, names)


def _questions(scene: Scene, subject: Subject, paragraph: Paragraph) -> list[dict[str, Any]]:
    """Write questions. Two in three are answerable; the others are about a missing fact or about the rival."""
    told = [ask for fact in paragraph.told for ask in subject.asks[fact]]
    untold = [ask for fact, asks in subject.asks.items() if fact not in paragraph.told for ask in asks]
    foreign = list(told)
    questions = []
    for number in range(QUESTIONS):
        pool = scene.pick((told, told, told, told, untold or foreign, foreign))
        fact, slot = pool.pop(scene.draw(len(pool)))
        scene.alias = {subject.slot: subject.rival} if pool is foreign else {}
        asked = scene.write(subject.grammar[f"Ask_{fact}_{slot}"]).text
        right = [_answer(paragraph.names[fact, slot])] if pool is told else []
        question = {"question": asked, "id": f"{scene.id}-{number}", "is_impossible": not right, "answers": right}
        if not right:
            question["plausible_answers"] = _plausible(paragraph, fact, slot, subject.slot)
        questions.append(question)
    return questions


def _plausible(paragraph: Paragraph, fact: str, slot: str, subject: str) -> list[dict[str, Any]]:
    """Return a plausible wrong answer. A question about the rival gets the subject's answer, and another one a
    name of the right kind, if there is one."""
    kind = slot[:-1]
    same = [name for (_, other), name in paragraph.names.items() if other[:-1] == kind and other != subject]
    found = paragraph.names.get((fact, slot)) or next(iter(same), None)
    return [_answer(found)] if found else []


def _answer(name: tuple[str, int]) -> dict[str, Any]:
    return {"text": name[0], "answer_start": name[1]}
