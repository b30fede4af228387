"""Licences: what a text about one amounts to, and what a mixture may ask for.

A dataset's `licence` is its publisher's wording. Only a wording that is one well-known licence, whole, is classed
by itself: what has conditions beside it ("MIT, texts withheld") is for the spec to class. This is no legal advice.
"""

from __future__ import annotations

import re
from typing import Literal, get_args

LicenceClass = Literal["public-domain", "permissive", "share-alike", "non-commercial", "research-only", "unstated"]
CLASSES: tuple[LicenceClass, ...] = get_args(LicenceClass)

# Words of a mixture's `licences` that stand for several classes.
POLICIES: dict[str, frozenset[LicenceClass]] = {
    "commercial": frozenset({"public-domain", "permissive", "share-alike"}),
}

_V = r"( v?\d+(\.\d+)*)?"
_PATTERNS: dict[LicenceClass, str] = {
    "public-domain": rf"cc0{_V}|cc zero|pddl{_V}|unlicense|0bsd|public domain|pdm{_V}",
    "permissive": rf"mit|isc|zlib|(bsd|bsd \d clause|\d clause bsd|bsd\d?){_V}|apache{_V}|cc by{_V}"
    rf"|odc by{_V}|cdla permissive{_V}|artistic{_V}",
    "share-alike": rf"cc by sa{_V}|odbl{_V}|(gnu )?[al]?gpl{_V}( (only|or later))?|gfdl{_V}"
    rf"|mpl{_V}|cdla sharing{_V}",
    "non-commercial": rf"cc by nc( sa| nd)?{_V}|non ?commercial( use)?( only)?",
    "research-only": r"(non ?commercial |academic )?(research|academic|educational)( use| purposes)?( only)?",
    "unstated": r"(not stated|unknown|unspecified|no licen[cs]e|none)\b.*",
}
_SPOKEN = {
    "creative commons zero": "cc0",
    "creative commons": "cc",
    "attribution": "by",
    "noncommercial": "nc",
    "non commercial": "nc",
    "sharealike": "sa",
    "share alike": "sa",
    "noderivatives": "nd",
    "no derivatives": "nd",
}


def licence_class(text: str) -> LicenceClass | None:
    """The class of a licence by its wording: an SPDX identifier or a usual phrase, whatever its case and hyphens,
    with no more beside it than the name of the file that says so. None: not one that is known."""
    words = re.sub(r"\((licen[cs]e|readme)[^()]*\)$", "", text.strip().casefold())
    words = " ".join(re.sub(r"[\s_\-]+", " ", words).split())
    if words.startswith("creative commons"):
        for spoken, short in _SPOKEN.items():
            words = words.replace(spoken, short)
    words = re.sub(r"^the | (international|unported|generic|universal|deed|licen[cs]e)\b", "", words)
    return next((kind for kind, known in _PATTERNS.items() if re.fullmatch(known, words)), None)


def meets(licence: str, kind: LicenceClass, policy: list[str]) -> bool:
    """Whether a licence is among `policy`: words of `POLICIES`, classes, and licences in their own wording."""
    return any(kind in POLICIES.get(word, {word}) or word == licence for word in policy)
