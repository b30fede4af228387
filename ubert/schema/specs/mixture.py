"""A mixture: which records, in what proportion. `corpus_specs/mixtures/<name>.yaml`."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator, model_validator

from ubert.schema.names import NAME
from ubert.schema.record import Split
from ubert.schema.yaml_file import Described


def _one_sentence(given: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """Raise a single error for a wrong value; pydantic would raise one for each type that it may have."""
    try:
        return check(given)
    except ValidationError:
        raise ValueError("expected drop, keep, or the share to keep, above 0 and below 1") from None


Suspects = Annotated[Literal["drop", "keep"] | Annotated[float, Field(gt=0, lt=1)], WrapValidator(_one_sentence)]


class MixtureSource(Described):
    """One corpus of a mixture, or another mixture, which is then mixed by its own policy. `split` and the keys
    after it apply only to a corpus."""

    corpus: str = Field(default="", pattern=NAME)
    """The corpus."""
    mixture: Mixture | None = None
    """Instead of a corpus: the name of a mixture, or its definition."""
    weight: float = Field(default=1.0, gt=0.0, lt=float("inf"))
    """Multiplies the draws that the policy gives."""
    split: Split = "train"
    """The split to draw from."""
    where: str | None = None
    """Draw only records that meet this SQL condition on the view `records`."""
    cap: int | None = Field(default=None, gt=0)
    """Use at most this many records."""
    max_copies: int = Field(default=4, gt=0)
    """Draw one record at most this many times."""
    balance: float | None = Field(default=None, ge=1.0)
    """Draw rare categories more often. A record counts for the rarest of its categories. The n records of a
    category get draws in proportion to n^(1/balance), and each record at most `max_copies`."""

    @property
    def name(self) -> str:
        """Its name in `phases` and in errors."""
        return self.mixture.name if self.mixture else f"{self.corpus}/{self.split}"

    @model_validator(mode="after")
    def _one_kind(self) -> MixtureSource:
        if bool(self.corpus) == bool(self.mixture):
            raise ValueError("expected exactly one of `corpus` and `mixture`")
        of_corpus = sorted(self.model_fields_set - {"mixture", "weight", "corpus"})
        if self.mixture and of_corpus:
            raise ValueError(f"{', '.join(of_corpus)}: applies only to a corpus; move it into {self.mixture.name}")
        return self


class Phase(Described):
    """A part of a curriculum."""

    share: float = Field(gt=0.0, le=1.0)
    """The share of all draws."""
    weights: dict[str, float] = Field(default_factory=dict)
    """Weights by name of corpus or mixture, which replace the sources' own; 0 leaves one out."""

    @model_validator(mode="after")
    def _not_negative(self) -> Phase:
        for name, weight in self.weights.items():
            if not 0.0 <= weight < float("inf"):
                raise ValueError(f"weights: {name}: {weight} is not a weight; give 0 or more")
        return self


class Mixture(Described):
    """Which records are drawn, and how often. Each source gets draws in proportion to weight * min(n * scale,
    maximum)^(1/T) (seqio's rates). n is the number of its records that may be drawn, or for a mixture its `size`
    or the sum over its sources. `seed`, `phases`, `leaks`, `duplicates`, `suspects`, `evidence` and
    `hold_out` apply to the mixtures among the sources too, whose own are ignored. Their `licences` must be met as
    well."""

    name: str = Field(pattern=NAME)
    """The name of the mixture, and of this file."""
    description: str = ""
    """What it is for."""
    policy: Literal["proportional", "temperature", "equal"] = "proportional"
    """How sources share the draws. proportional: T = 1. temperature: T is `temperature`. equal: each gets the same
    number, times its `weight`."""
    temperature: float = Field(default=2.0, ge=1.0)
    """T, for `policy: temperature`."""
    scale: float = Field(default=1.0, gt=0.0, lt=float("inf"))
    """Multiplies the number of records of each source."""
    maximum: int | None = Field(default=None, gt=0)
    """Count at most this many records of each source."""
    by: Literal["source", "corpus", "task", "language"] = "source"
    """What the policy shares the draws among. Within a corpus, task or language, sources get draws in proportion
    to weight * n."""
    size: int | None = Field(default=None, gt=0)
    """The number of draws; default: the sum of min(n * scale, maximum)."""
    seed: int = Field(default=0, ge=0)
    """The seed of the draw."""
    phases: list[Phase] = Field(default_factory=list)
    """A curriculum: training goes through the phases in order."""
    leaks: Literal["drop", "refuse", "allow"] = "drop"
    """What to do with records whose text is in an evaluation split of any corpus. refuse: report an error."""
    duplicates: Literal["drop", "keep"] = "drop"
    """What to do with records that repeat another one of the mixture."""
    suspects: Suspects = "keep"
    """Whether to draw records that `ubert suspects` flagged as wrong. A number keeps that share of them."""
    evidence: Literal["exact", "audited"] = "exact"
    """Which texts count as equal. exact: texts that differ only in case, width and white space. audited: also
    those that `ubert duplicates` and `ubert contamination` found."""
    hold_out: list[Annotated[str, Field(pattern=r"^[a-z0-9*?][a-z0-9_.*?-]*$")]] = Field(default_factory=list)
    """Corpora from which the model must learn nothing, by name or pattern (`ade_corpus*`). Records with an equal
    or nearly equal text are left out, and so are corpora that are their twins."""
    licences: list[str] = Field(default_factory=list)
    """The licences that corpora may have: `commercial`, classes of licences, or licences; default: any."""
    sources: list[MixtureSource] = Field(min_length=1)
    """The corpora and mixtures to draw from."""

    @property
    def guarded(self) -> bool:
        """Whether some records that match may not be drawn."""
        return self.leaks != "allow" or self.duplicates == "drop" or self.suspects != "keep" or bool(self.hold_out)

    @property
    def leaves(self) -> list[MixtureSource]:
        """The corpora, in order, including those of its mixtures."""
        return [
            leaf for source in self.sources for leaf in (source.mixture.leaves if source.mixture else [source])
        ]

    @property
    def meaning(self) -> dict[str, Any]:
        """Its content without descriptions: all that decides what is drawn."""
        content = self.model_dump(mode="json", exclude={"description": True, "sources": {"__all__": {"mixture"}}})
        for source, dumped in zip(self.sources, content["sources"], strict=True):
            dumped["mixture"] = source.mixture.meaning if source.mixture else None
        if self.suspects == "keep":
            del content["suspects"]  # mixtures that were drawn before this key existed stay current
        return content

    @model_validator(mode="after")
    def _words_fit(self) -> Mixture:
        for names in ([leaf.name for leaf in self.leaves], [source.name for source in self.sources]):
            if twice := sorted(name for name, count in Counter(names).items() if count > 1):
                raise ValueError(f"sources named twice: {', '.join(twice)}; join their conditions in one `where`")
        if "temperature" in self.model_fields_set and self.policy != "temperature":
            raise ValueError(f"temperature applies only to `policy: temperature`, got `policy: {self.policy}`")
        if self.policy == "equal" and self.maximum:
            raise ValueError("maximum has no effect with `policy: equal`; use `size`, or `cap`")
        if self.phases and abs(sum(phase.share for phase in self.phases) - 1.0) > 1e-6:
            shares = " + ".join(f"{phase.share:g}" for phase in self.phases)
            raise ValueError(f"phases: the shares {shares} don't sum to 1; change one of them")
        known = {name for source in self.sources for name in (source.name, source.corpus)}
        for i, phase in enumerate(self.phases):
            if unknown := sorted(phase.weights.keys() - known):
                there = ", ".join(source.name for source in self.sources)
                raise ValueError(f"phases.{i}.weights: no source {', '.join(unknown)}; expected any of {there}")
        return self
