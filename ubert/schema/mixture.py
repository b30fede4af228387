"""A mixture: which records, in what proportion. `corpus_specs/mixtures/<name>.yaml`."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from ubert.schema.record import Split
from ubert.schema.spec import NAME
from ubert.schema.yaml_file import Strict


class MixtureSource(Strict):
    """One corpus of a mixture, or another mixture, which is then mixed by its own words.

    `weight` multiplies what the policy gives. Of a corpus: `where` is a SQL condition on the view `records`; `cap`
    bounds the records that count and are drawn; `max_copies` bounds how often one record may be repeated;
    `balance` draws records of rare categories more: a record belongs to the rarest of its categories, and the n
    records of one category are drawn in proportion to n^(1/balance), none more than `max_copies` times.
    """

    corpus: str = Field(default="", pattern=NAME)
    mixture: Mixture | None = None  # in YAML by its name, or written out
    weight: float = Field(default=1.0, gt=0.0, lt=float("inf"))
    split: Split = "train"
    where: str | None = None
    cap: int | None = Field(default=None, gt=0)
    max_copies: int = Field(default=4, gt=0)
    balance: float | None = Field(default=None, ge=1.0)

    @property
    def name(self) -> str:
        """How `phases` and errors call it."""
        return self.mixture.name if self.mixture else f"{self.corpus}/{self.split}"

    @model_validator(mode="after")
    def _one_kind(self) -> MixtureSource:
        if bool(self.corpus) == bool(self.mixture):
            raise ValueError("give `corpus` or `mixture`, one of them")
        of_corpus = sorted(self.model_fields_set - {"mixture", "weight", "corpus"})
        if self.mixture and of_corpus:
            raise ValueError(f"{', '.join(of_corpus)}: of a corpus only; say it inside of {self.mixture.name}")
        return self


class Phase(Strict):
    """A part of a curriculum: `share` of all draws. `weights`, by name of corpus or mixture, take the place of the
    sources' own; 0 leaves one out."""

    share: float = Field(gt=0.0, le=1.0)
    weights: dict[str, float] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _not_negative(self) -> Phase:
        for name, weight in self.weights.items():
            if not 0.0 <= weight < float("inf"):
                raise ValueError(f"weights: {name}: {weight} is no weight; give 0 or more")
        return self


class Mixture(Strict):
    """Each source gets draws in proportion to weight * min(n * scale, maximum)^(1/T) (seqio's rates), where n is
    the number of its records that may be drawn, and of a mixture the sum over its own.

    policy: proportional, T = 1; temperature, T = `temperature`; equal, all get the same (with `weight`: explicit
    weights). `by: task | language | corpus`: the policy is applied to groups of sources; within one, they get
    draws in proportion to weight * n. `size` is the number of draws in all; default: the sum of
    min(n * scale, maximum). `phases`: a curriculum; training goes through them in order.

    What n doesn't count: `leaks`, records whose text is in an evaluation split of any corpus too (drop, refuse
    the mixture, or allow), and `duplicates` of another record of the mixture (drop or keep). `evidence` says
    what is one text: `exact`, what differs in case, width and white space at most; `audited`, also what `ubert
    duplicates` and `ubert contamination` found. `suspects`: records that `ubert suspects` flagged as wrong, in
    each corpus (drop or keep). `hold_out`: corpora by name (`ade_corpus*` for several) of which nothing may be
    learnt: records with a text of theirs are left out, exactly or nearly the same, and so are all corpora of
    their twins. `licences`: what every corpus must meet: `commercial`, a class of licences, or a licence itself.
    These, `seed` and `phases` hold for the mixtures among the sources too, whose own are not looked at, but for
    their `licences`: both must be met.
    """

    name: str = Field(pattern=NAME)
    description: str = ""
    policy: Literal["proportional", "temperature", "equal"] = "proportional"
    temperature: float = Field(default=2.0, ge=1.0)
    scale: float = Field(default=1.0, gt=0.0, lt=float("inf"))
    maximum: int | None = Field(default=None, gt=0)
    by: Literal["source", "corpus", "task", "language"] = "source"
    size: int | None = Field(default=None, gt=0)
    seed: int = Field(default=0, ge=0)
    phases: list[Phase] = Field(default_factory=list)
    leaks: Literal["drop", "refuse", "allow"] = "drop"
    duplicates: Literal["drop", "keep"] = "drop"
    suspects: Literal["drop", "keep"] = "keep"
    evidence: Literal["exact", "audited"] = "exact"
    hold_out: list[Annotated[str, Field(pattern=r"^[a-z0-9*?][a-z0-9_.*?-]*$")]] = Field(default_factory=list)
    licences: list[str] = Field(default_factory=list)  # none: any
    sources: list[MixtureSource] = Field(min_length=1)

    @property
    def guarded(self) -> bool:
        """Whether some records that match may not be drawn."""
        drops = "drop" in (self.duplicates, self.suspects)
        return self.leaks != "allow" or drops or bool(self.hold_out)

    @property
    def leaves(self) -> list[MixtureSource]:
        """The corpora, in order, those of its mixtures among them."""
        return [
            leaf for source in self.sources for leaf in (source.mixture.leaves if source.mixture else [source])
        ]

    @property
    def meaning(self) -> dict[str, Any]:
        """All that it says, but for what describes it."""
        content = self.model_dump(mode="json", exclude={"description": True, "sources": {"__all__": {"mixture"}}})
        for source, said in zip(self.sources, content["sources"], strict=True):
            said["mixture"] = source.mixture.meaning if source.mixture else None
        if self.suspects == "keep":
            del content["suspects"]  # what was drawn before mixtures had the word stays current
        return content

    @model_validator(mode="after")
    def _words_fit(self) -> Mixture:
        for names in ([leaf.name for leaf in self.leaves], [source.name for source in self.sources]):
            if twice := sorted(name for name, count in Counter(names).items() if count > 1):
                raise ValueError(f"sources named twice: {', '.join(twice)}; join their conditions in one `where`")
        if "temperature" in self.model_fields_set and self.policy != "temperature":
            raise ValueError(f"temperature: of `policy: temperature` only, and this is `policy: {self.policy}`")
        if self.policy == "equal" and self.maximum:
            raise ValueError("maximum: with `policy: equal` no number of records counts; use `size`, or `cap`")
        if self.phases and abs(sum(phase.share for phase in self.phases) - 1.0) > 1e-6:
            shares = " + ".join(f"{phase.share:g}" for phase in self.phases)
            raise ValueError(f"phases: the shares {shares} don't sum to 1")
        known = {name for source in self.sources for name in (source.name, source.corpus)}
        for i, phase in enumerate(self.phases):
            if unknown := sorted(phase.weights.keys() - known):
                there = ", ".join(source.name for source in self.sources)
                raise ValueError(f"phases.{i}.weights: {', '.join(unknown)} is none of the sources {there}")
        return self
