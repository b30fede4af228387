"""A small template grammar. Rules are expanded with a seeded generator, and the offsets of names are kept.

    (a|b|)         one of the alternatives
    {rule}         a random alternative of the rule, drawn again at each use
    {rule1}        the same alternative at each use of rule1; rule2 is a different one
    {rule1.form}   a form of it: of a rule whose alternatives have forms, or of a name (`{person1.last}`)
    {^rule}        capitalised; {a rule} with its indefinite article; {^a rule} both
    <words>        an event's trigger

A rule with a capitalised name contains templates. Its alternatives are divided among the splits, so that no two
splits share one. The other rules are vocabulary that all splits share.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any, TypeAlias

import yaml

from pipelines.samples.scene import Item, Name, Scene
from ubert.schema.record import Split

Rules: TypeAlias = Mapping[str, str | list[dict[str, str]]]  # alternatives as lines, or alternatives with forms

TRIGGER = "trigger"
MARKED = frozenset({"full", "short", "last", "first"})  # forms that name; pronouns do not
_DEAL: tuple[Split, ...] = ("train", "train", "train", "validation", "test")
_REFERENCE = re.compile(r"(\^?)(a )?([A-Za-z_]+?)(\d*)(?:\.([a-z]+))?")
_SPECIAL = re.compile(r"[(|){}<>]")
_AN = re.compile(r"(?!(?:uni|use|eu|one))[aeiou]|hon(?:est|our)|hour|8|11 |18 ", re.IGNORECASE)


Writer: TypeAlias = Callable[[Scene], None]
Maker: TypeAlias = Callable[[Scene, int], Name]  # (scene, number of the slot) -> a name
Grammar: TypeAlias = dict[str, list[Writer]]  # "rule" or "rule.form" -> its alternatives


def deal(items: Sequence[Item], split: Split) -> list[Item]:
    """Return the items of a split. Training gets three of every five items, validation one and test one."""
    return [item for i, item in enumerate(items) if _DEAL[i % len(_DEAL)] == split]


def read(name: str) -> Any:
    """Parse `texts/<name>.yaml`."""
    content = resources.files(__package__).joinpath("texts", f"{name}.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(content)


def compile_rules(rules: Rules, makers: Mapping[str, Maker], split: Split) -> Grammar:
    """Compile rules to functions that write to a scene. A capitalised rule keeps only the split's alternatives.

    Raises:
        ValueError: a template does not parse, or refers to a rule that does not exist.
    """
    grammar: Grammar = {}
    for name, value in rules.items():
        alternatives = [{"": line} for line in value.splitlines()] if isinstance(value, str) else value
        for forms in deal(alternatives, split) if name[0].isupper() else alternatives:
            for form, template in forms.items():
                key = f"{name}.{form}" if form else name
                grammar.setdefault(key, []).append(_template(template, grammar, makers))
    # References are bound late, so that rules may have any order. All of them are checked here.
    missing = {key for key in _references(rules) if key.partition(".")[0] not in makers and key not in grammar}
    if missing:
        raise ValueError(f"rules {sorted(missing)} are used and not defined")
    return grammar


def _references(rules: Rules) -> set[str]:
    values = [
        v if isinstance(v, str) else "\n".join(w for forms in v for w in forms.values()) for v in rules.values()
    ]
    found = (_REFERENCE.fullmatch(body) for body in re.findall(r"\{([^}]*)\}", "\n".join(values)))
    return {f"{m[3]}.{m[5]}" if m[5] else m[3] for m in found if m}


def _template(source: str, grammar: Grammar, makers: Mapping[str, Maker]) -> Writer:
    writer, end = _choice(source, 0, grammar, makers)
    if end != len(source):
        raise ValueError(f"unexpected {source[end]!r} at {end} in template {source!r}")
    return writer


def _choice(source: str, at: int, grammar: Grammar, makers: Mapping[str, Maker]) -> tuple[Writer, int]:
    """Parse alternatives up to a closing bracket or the end."""
    alternatives = []
    while True:
        writer, at = _sequence(source, at, grammar, makers)
        alternatives.append(writer)
        if source[at : at + 1] != "|":
            break
        at += 1
    if len(alternatives) == 1:
        return alternatives[0], at

    def write(scene: Scene) -> None:
        alternatives[scene.draw(len(alternatives))](scene)

    return write, at


def _sequence(source: str, at: int, grammar: Grammar, makers: Mapping[str, Maker]) -> tuple[Writer, int]:
    """Parse words, references and groups up to a bar, a closing bracket or the end."""
    steps: list[Writer] = []
    while at < len(source) and source[at] not in "|)>":
        if source[at] == "{":
            end = source.index("}", at)
            steps.append(_reference(source[at + 1 : end], grammar, makers))
            at = end + 1
        elif source[at] in "(<":
            inner, end = _choice(source, at + 1, grammar, makers)
            if source[end : end + 1] != {"(": ")", "<": ">"}[source[at]]:
                raise ValueError(f"{source[at]!r} at {at} is not closed in template {source!r}")
            steps.append(inner if source[at] == "(" else _marked(inner))
            at = end + 1
        else:
            found = _SPECIAL.search(source, at)
            end = found.start() if found else len(source)
            steps.append(_words(source[at:end]))
            at = end
    if len(steps) == 1:
        return steps[0], at

    def write(scene: Scene) -> None:
        for step in steps:
            step(scene)

    return write, at


def _words(words: str) -> Writer:
    return lambda scene: scene.parts.append(words)


def _marked(inner: Writer) -> Writer:
    def write(scene: Scene) -> None:
        first = len(scene.parts)
        inner(scene)
        scene.marks.append((TRIGGER, first, len(scene.parts)))

    return write


def _reference(body: str, grammar: Grammar, makers: Mapping[str, Maker]) -> Writer:
    found = _REFERENCE.fullmatch(body)
    if not found:
        raise ValueError(f"{{{body}}} is not a reference")
    capital, article, kind, number, form = found.groups()
    if kind in makers:
        writer = _name(kind, int(number or 1), form or "full", makers[kind])
    elif number:
        writer = _bound(kind, number, f"{kind}.{form}" if form else kind, grammar)
    else:
        writer = _fresh(f"{kind}.{form}" if form else kind, grammar)
    if article:
        writer = _with_article(writer)
    return _capitalised(writer) if capital else writer


def _name(kind: str, number: int, form: str, maker: Maker) -> Writer:
    own = f"{kind}{number}"

    def write(scene: Scene) -> None:
        slot = scene.alias.get(own, own)
        name = scene.cast.get(slot) or _new(scene, kind, slot, maker)
        scene.parts.append(name[form])
        if form in MARKED:
            at = len(scene.parts)
            scene.marks.append((own, at - 1, at))

    return write


def _new(scene: Scene, kind: str, slot: str, maker: Maker) -> Name:
    """Make a name whose forms all differ from those of the other names of its kind in the scene."""
    others = {
        name[form] for other, name in scene.cast.items() if other.startswith(kind) for form in MARKED & name.keys()
    }
    number = int(slot[len(kind) :])
    name = maker(scene, number)
    while any(name[form] in others for form in MARKED & name.keys()):
        name = maker(scene, number)
    scene.cast[slot] = name
    return name


def _bound(kind: str, number: str, key: str, grammar: Grammar) -> Writer:
    own = kind + number

    def write(scene: Scene) -> None:
        alternatives = grammar[key]
        if own not in scene.cast:
            taken = {name["index"] for other, name in scene.cast.items() if other.rstrip("0123456789") == kind}
            index = scene.draw(len(alternatives))
            while str(index) in taken:
                index = scene.draw(len(alternatives))
            scene.cast[own] = {"index": str(index)}
        alternatives[int(scene.cast[own]["index"])](scene)

    return write


def _fresh(key: str, grammar: Grammar) -> Writer:
    def write(scene: Scene) -> None:
        alternatives = grammar[key]
        alternatives[scene.draw(len(alternatives))](scene)

    return write


def _with_article(inner: Writer) -> Writer:
    def write(scene: Scene) -> None:
        first = len(scene.parts)
        scene.parts.append("")
        inner(scene)
        following = next(part for part in scene.parts[first + 1 :] if part)
        scene.parts[first] = "an " if _AN.match(following) else "a "

    return write


def _capitalised(inner: Writer) -> Writer:
    def write(scene: Scene) -> None:
        first = len(scene.parts)
        inner(scene)
        at = next(i for i in range(first, len(scene.parts)) if scene.parts[i])
        scene.parts[at] = scene.parts[at][0].upper() + scene.parts[at][1:]

    return write
