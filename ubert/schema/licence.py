"""Classify licences, and check them against a mixture's policy.

A dataset's `licence` is the text of its publisher. A class is inferred only if that text is exactly one well-known
licence. If it adds conditions ("MIT, texts withheld"), the spec must state the class. This is no legal advice.
"""

from __future__ import annotations

import re
from typing import Literal, get_args

LicenceClass = Literal["public-domain", "permissive", "share-alike", "non-commercial", "research-only", "unstated"]
CLASSES: tuple[LicenceClass, ...] = get_args(LicenceClass)

# Names in a mixture's `licences` that mean several classes.
POLICIES: dict[str, frozenset[LicenceClass]] = {
    "commercial": frozenset({"public-domain", "permissive", "share-alike"})
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
    "unstated": r"(not stated|unknown|unspecified|none)\b.*|no",  # "no licence", without its second word
}
_SYNONYMS = {
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
    """Infer the class of a licence from its text; None if the text is not a known licence.

    The text is an SPDX identifier or a usual phrase, in any case and with any hyphens. It may name the file that
    states the licence in parentheses at its end.
    """
    words = re.sub(r"\((licen[cs]e|readme)[^()]*\)$", "", text.strip().casefold())
    words = " ".join(re.sub(r"[\s_\-]+", " ", words).split())
    if words.startswith("creative commons"):
        for spoken, short in _SYNONYMS.items():
            words = words.replace(spoken, short)
    words = re.sub(r"^the | (international|unported|generic|universal|deed|licen[cs]e)\b", "", words)
    return next((kind for kind, known in _PATTERNS.items() if re.fullmatch(known, words)), None)


def meets(licence: str, kind: LicenceClass, policy: list[str]) -> bool:
    """Whether a licence matches `policy`: names of `POLICIES`, classes, or literal licence texts."""
    return any(kind in POLICIES.get(word, {word}) or word == licence for word in policy)
