"""Compose the names of people, firms, places, products, dates and sums from parts."""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.samples.grammar import Grammar, Maker, compile_rules, deal, read
from pipelines.samples.scene import Name, Scene
from ubert.schema.record import Split

_ERAS = {1: (1870, 60), 2: (1955, 30), 3: (1990, 25)}  # first year and range, so that year1 < year2 < year3


def makers(split: Split) -> dict[str, Maker]:
    """Return for each kind of slot a function that makes a name from the split's own parts."""
    parts = _parts(split)
    return {
        "person": lambda scene, number: _person(scene, parts),
        "firm": lambda scene, number: _firm(scene, parts),
        "place": lambda scene, number: {"full": _place(scene, parts)},
        "product": lambda scene, number: _product(scene, parts),
        "role": lambda scene, number: {"full": scene.pick(parts["roles"])},
        "day": lambda scene, number: {"full": _day(scene, parts)},
        "month": lambda scene, number: {"full": _month(scene, parts)},
        "year": lambda scene, number: _year(scene, number),
        "money": lambda scene, number: {"full": _money(scene)},
        "sum": lambda scene, number: {"full": _sum(scene)},
        "price": lambda scene, number: {"full": _price(scene, 20, 400)},
        "fare": lambda scene, number: {"full": _price(scene, 2, 18)},
        "number": lambda scene, number: _number(scene),
        "population": lambda scene, number: {"full": f"{1_100 + scene.draw(90_000):,}"},
    }


def grammars(name: str, split: Split) -> list[tuple[str, Grammar]]:
    """Compile the grammars in `texts/<name>.yaml`, which share the rules of `shared`."""
    texts, names = read(name), makers(split)
    shared = texts.pop("shared")
    return [(part, compile_rules({**shared, **rules}, names, split)) for part, rules in texts.items()]


def _parts(split: Split) -> Mapping[str, list[str]]:
    def cut(words: str) -> list[str]:
        return words.split("|") if "|" in words else words.split()

    lists = {name: cut(str(words)) for name, words in read("names").items()}
    return {name: deal(words, split) if name[0].isupper() else words for name, words in lists.items()}


def _person(scene: Scene, parts: Mapping[str, list[str]]) -> Name:
    woman = scene.draw(2)
    first, last = scene.pick(parts["Women" if woman else "Men"]), _surname(scene, parts)
    pronouns = {"he": "she", "his": "her", "him": "her"} if woman else {"he": "he", "his": "his", "him": "him"}
    return {"full": f"{first} {last}", "first": first, "last": last, **pronouns}


def _surname(scene: Scene, parts: Mapping[str, list[str]]) -> str:
    if scene.draw(3) == 0:
        return scene.pick(parts["Surnames"])
    return scene.pick(parts["Surname_heads"]) + scene.pick(parts["surname_tails"])


def _firm(scene: Scene, parts: Mapping[str, list[str]]) -> Name:
    """Make the name of a firm. Some contain a surname or place, so that a name alone does not tell its type."""
    shape = scene.draw(8)
    if shape == 0:
        full = short = f"{_surname(scene, parts)} & {scene.pick(('Sons', 'Daughters', 'Partners', 'Company'))}"
    elif shape == 1:
        full = short = f"{_place(scene, parts)} {scene.pick(parts['local_businesses'])}"
    else:
        coined = scene.pick(parts["Stems"]) + scene.pick(parts["stem_tails"])
        short = _surname(scene, parts) if shape == 2 else coined
        full = f"{short} {scene.pick(parts['legal'] if shape == 3 else parts['businesses'])}"
    return {"full": full, "short": short}


def _place(scene: Scene, parts: Mapping[str, list[str]]) -> str:
    name = scene.pick(parts["Place_heads"]) + scene.pick(parts["place_tails"])
    return f"{scene.pick(parts['place_fronts'])} {name}" if scene.draw(5) == 0 else name


def _product(scene: Scene, parts: Mapping[str, list[str]]) -> Name:
    short = scene.pick(parts["Products"])
    return {"full": f"{short} {scene.pick(parts['product_tails'])}", "short": short}


def _day(scene: Scene, parts: Mapping[str, list[str]]) -> str:
    """Make a date that can follow "on"."""
    day, month = 1 + scene.draw(28), scene.pick(parts["months"])
    shape = scene.draw(4)
    if shape == 0:
        return f"{scene.pick(parts['weekdays'])} {day} {month}"
    if shape == 1:
        return f"{month} {day}, {2012 + scene.draw(14)}"
    return f"{day} {month} {2012 + scene.draw(14)}" if shape == 2 else f"{day} {month}"


def _month(scene: Scene, parts: Mapping[str, list[str]]) -> str:
    """Make a date that can follow "in"."""
    front = scene.pick(parts["seasons"] if scene.draw(4) == 0 else parts["months"])
    return f"{front} {2005 + scene.draw(21)}"


def _year(scene: Scene, number: int) -> Name:
    first, length = _ERAS[number % 10]
    year = first + scene.draw(length)
    return {"full": str(year), "before": str(year - 2 - scene.draw(9)), "after": str(year + 2 + scene.draw(9))}


def _money(scene: Scene) -> str:
    """Make the price of a firm."""
    fraction = f"{1 + scene.draw(90)}.{1 + scene.draw(9)}"
    amount = fraction if scene.draw(2) else f"{2 + scene.draw(900)}"
    shape = scene.draw(10)
    if shape < 2:
        return f"{amount} million {scene.pick(('dollars', 'euros', 'pounds', 'kronor'))}"
    return f"{scene.pick('$€£')}{fraction} billion" if shape == 2 else f"{scene.pick('$€£')}{amount} million"


def _sum(scene: Scene) -> str:
    """Make the amount of a prize or a yearly salary."""
    amount = f"{2 + scene.draw(98)},{scene.pick(('000', '500'))}"
    return f"{amount} {scene.pick(('dollars', 'euros'))}" if scene.draw(5) == 0 else f"{scene.pick('$€£')}{amount}"


def _price(scene: Scene, least: int, spread: int) -> str:
    """Make the price of a single product."""
    return f"{scene.pick('$€£')}{least + scene.draw(spread)}{scene.pick(('', '.50', '.99', '.95'))}"


def _number(scene: Scene) -> Name:
    """Make a count, with a lower one and a higher one."""
    value = 25 + scene.draw((80, 800, 8000)[scene.draw(3)])
    return {"full": f"{value:,}", "less": f"{value * 4 // 5:,}", "more": f"{value * 5 // 4 + 5:,}"}
