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
    """

    name: str = Field(pattern=NAME)
    description: str = ""
    policy: Literal["proportional", "temperature", "equal"] = "proportional"
    temperature: float = Field(default=2.0, ge=1.0)
    size: int | None = Field(default=None, gt=0)
    seed: int = Field(default=0, ge=0)
    sources: list[MixtureSource] = Field(min_length=1)

    @model_validator(mode="after")
    def _sources_differ(self) -> Mixture:
        names = [(s.corpus, s.split) for s in self.sources]
        twice = sorted({f"{corpus}/{split}" for corpus, split in names if names.count((corpus, split)) > 1})
        if twice:
            raise ValueError(f"sources named twice: {', '.join(twice)}; join their conditions in one `where`")
        return self
