"""A mixture: which records, in what proportion. `corpus_specs/mixtures/<name>.yaml`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ubert.schema.record import Split
from ubert.schema.spec import NAME
from ubert.schema.yaml_file import Strict


class MixtureSource(Strict):
    """One corpus of a mixture. `where` is a SQL condition on the view `records`; `cap` bounds the records that
    count and are drawn; `max_copies` bounds how often one record may be repeated."""

    corpus: str = Field(pattern=NAME)
    split: Split = "train"
    where: str | None = None
    cap: int | None = Field(default=None, gt=0)
    max_copies: int = Field(default=4, gt=0)


class Mixture(Strict):
    """Quotas by policy over n_i = min(records that match, cap):

    proportional: n_i. temperature: in proportion to n_i^(1/temperature). equal: the same for each source.
    `size` is the number of draws in all; default: the sum of n_i.

    What n_i doesn't count: `leaks`, records whose text is in an evaluation split of any corpus too (drop, refuse
    the mixture, or allow), and `duplicates` of another record of the mixture (drop or keep). `evidence` says what
    is one text: `exact`, what differs in case, width and white space at most; `audited`, also what
    `ubert duplicates` and `ubert contamination` found. `licences`: what every corpus must meet: `commercial`, a
    class of licences, or a licence itself.
    """

    name: str = Field(pattern=NAME)
    description: str = ""
    policy: Literal["proportional", "temperature", "equal"] = "proportional"
    temperature: float = Field(default=2.0, ge=1.0)
    size: int | None = Field(default=None, gt=0)
    seed: int = Field(default=0, ge=0)
    leaks: Literal["drop", "refuse", "allow"] = "drop"
    duplicates: Literal["drop", "keep"] = "drop"
    evidence: Literal["exact", "audited"] = "exact"
    licences: list[str] = Field(default_factory=list)  # none: any
    sources: list[MixtureSource] = Field(min_length=1)

    @property
    def guarded(self) -> bool:
        """Whether some records that match may not be drawn."""
        return self.leaks != "allow" or self.duplicates != "keep"

    @model_validator(mode="after")
    def _sources_differ(self) -> Mixture:
        names = [(s.corpus, s.split) for s in self.sources]
        twice = sorted({f"{corpus}/{split}" for corpus, split in names if names.count((corpus, split)) > 1})
        if twice:
            raise ValueError(f"sources named twice: {', '.join(twice)}; join their conditions in one `where`")
        return self
