"""Manifests: what lies in a directory of the store, and from what it was made. Written last, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Protocol, Self, TypeVar

from blake3 import blake3
from pydantic import Field

from ubert.schema.errors import UserError
from ubert.schema.licence import LicenceClass
from ubert.schema.record import SCHEMA_VERSION, Split, Task
from ubert.schema.yaml_file import Strict, validate

MANIFEST = "manifest.json"
FILES = "files.parquet"  # of a corpus: its source files, of which there may be as many as records
ATTEMPT = "attempt.json"  # the manifest of a corpus that was not published, as too many rows were refused


def fingerprint(*parts: Any) -> str:
    """16 hex digits of the content of `parts` (anything JSON can hold)."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return blake3(text.encode()).hexdigest(16 // 2)


class Manifest(Strict):
    """What all manifests share. `created` is UTC, ISO 8601: the newest of one name is the current one."""

    name: str
    fingerprint: str
    schema_version: int = SCHEMA_VERSION
    created: str


class SplitCounts(Strict):
    """What the source files of a split come to: records = kept + rejected. `warnings` counts what looks wrong in
    the records that were kept."""

    split: Split
    files: int
    bytes: int
    records: int
    kept: int
    rejected: int
    warnings: dict[str, int] = Field(default_factory=dict)


class CorpusManifest(Manifest):
    """`corpora/<name>/<fingerprint>/manifest.json`; beside it lie the `parts` and `FILES`."""

    task: Task
    language: str
    licence: str
    licence_class: LicenceClass = "unstated"
    dataset: str = ""  # the folder of its raw files
    twins: list[str] = Field(default_factory=list)  # datasets with the same texts
    upstream: str | None
    # Kinds of category that were taken from the data: each label, and how often it occurs.
    from_data: dict[str, dict[str, int]] = Field(default_factory=dict)
    splits: list[SplitCounts]
    parts: list[str]
    reject_parts: list[str]
    mismatch_parts: list[str]


class DrawnCategory(Strict):
    """Of a balanced source: the `records` whose rarest category this is, and the draws from them."""

    category: str
    records: int
    draws: int


class RealisedSource(Strict):
    """What a mixture took from one source.

    Of the records that matched (`available`) four kinds are not drawn: those that are in an evaluation split too
    (`dropped_leaks`), those that another record of the mixture repeats (`dropped_duplicates`), those with a text
    of a held-out corpus (`dropped_held_out`), and those whose annotations are suspect (`dropped_suspects`).
    `records` are distinct ones, `draws` count their copies, phase by phase in `phases`; `epochs` are draws by
    records that may be drawn. `characters` are those of all draws, and `tokens` an estimate of theirs from the
    source's first texts."""

    corpus: str
    split: Split
    corpus_fingerprint: str
    available: int
    dropped_leaks: int = 0
    dropped_duplicates: int = 0
    dropped_held_out: int = 0
    dropped_suspects: int = 0
    records: int
    draws: int
    epochs: float
    characters: int
    tokens: int | None = None
    phases: list[int]
    categories: list[DrawnCategory] = Field(default_factory=list)


class MixtureManifest(Manifest):
    """`mixtures/<name>/<fingerprint>/manifest.json`. `encoder`: whose tokens were counted; `held_out`: the corpora
    whose texts it leaves out, name -> fingerprint."""

    sql: str
    encoder: str | None = None
    held_out: dict[str, str] = Field(default_factory=dict)
    sources: list[RealisedSource]

    @property
    def dropped(self) -> int:
        """Records that match and are not drawn; they are in `dropped.parquet`, each with its reason."""
        return sum(
            source.dropped_leaks + source.dropped_duplicates + source.dropped_held_out + source.dropped_suspects
            for source in self.sources
        )

    @property
    def phases(self) -> int:
        """How many phases an epoch has."""
        return len(self.sources[0].phases)


class AuditManifest(Manifest):
    """`audits/<name>/<fingerprint>/manifest.json`: what was found among `corpora` (name -> fingerprint),
    with which `parameters`; `counts` of what was compared and found."""

    corpora: dict[str, str]
    parameters: dict[str, str | int | float | list[str]]
    counts: dict[str, int]


class Alignment(Strict):
    """What became of the texts and spans of the records of one corpus that are drawn.

    rows: windows included; tokens: of text and pair in all rows; cut: records of which a part of the text or the
    pair is in no row. exact: token boundaries are the span's; widened: the tokens cover more than the span;
    narrowed: the span's ends are characters of no token, such as white space; lost: by reason. spans = exact +
    widened + narrowed + lost. links: relations, arguments of events, and next mentions of a cluster; lost_links:
    those of which no row holds both ends, by reason.
    """

    corpus: str
    records: int
    rows: int
    tokens: int
    cut: int
    spans: int
    exact: int
    widened: int
    narrowed: int
    lost: dict[str, int]
    links: int
    lost_links: dict[str, int]


class ShardFile(Strict):
    """One file of a shard set; `rows` and `tokens` of a shard are also those that the mixture doesn't draw."""

    path: str
    rows: int
    tokens: int
    blake3: str


class ShardManifest(Manifest):
    """`shards/<mixture>/<fingerprint>/manifest.json`.

    `tokenizer` is the hash of the tokenizer; `phases` is the number of phases; `sources` are the splits that the
    mixture drew from (corpus/split); `cut_categories` counts the category names, questions and instructions that
    were cut."""

    mixture: str
    mixture_fingerprint: str
    encoder: str
    tokenizer: str
    max_tokens: int
    phases: int
    sources: list[str] = Field(default_factory=list)
    shards: list[ShardFile]
    draws: ShardFile
    categories: ShardFile
    prompts: ShardFile
    cut_categories: int
    alignment: list[Alignment]


class Ancestor(Strict):
    """A checkpoint that a run began with: its run, its step, the blake3 of its weights, and the splits that it was
    trained on (corpus/split)."""

    run: str
    step: int
    weights: str
    sources: list[str] = Field(default_factory=list)


class RunManifest(Manifest):
    """`runs/<name>/manifest.json`: a finished run. `fingerprint` is of recipe, shards and ancestors; `checkpoint`
    is relative to the run, as is `best`, where the recipe keeps one; `loss` is that of the last step; `seconds`
    were spent in steps; `ancestry`: the chain of runs that gave it its weights, the oldest first."""

    recipe: str
    shards: str
    steps: int
    tokens: int
    seconds: float
    loss: float
    checkpoint: str
    best: str | None = None
    ancestry: list[Ancestor] = Field(default_factory=list)


class Folder(Protocol):
    """Where a manifest lies: a `Path`, or what has as much of it."""

    @property
    def name(self) -> str: ...

    @property
    def parent(self) -> Self: ...

    def __truediv__(self, name: str, /) -> Self: ...

    def read_text(self, encoding: str) -> str: ...

    def glob(self, pattern: str, /) -> Iterator[Self]: ...


AnyFolder = TypeVar("AnyFolder", bound=Folder)
AnyManifest = TypeVar("AnyManifest", bound=Manifest)


class OtherVersionError(UserError):
    """A manifest of another schema version."""


def read_manifest(model: type[AnyManifest], directory: Folder, file: str = MANIFEST) -> AnyManifest:
    """Read the manifest of a directory.

    Raises:
        OtherVersionError: it is of another schema version.
        UserError: there is none, it is not JSON, or a key is wrong.
    """
    path = directory / file
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"{path}: no manifest, so {directory.name} was never finished; run its job again"
        ) from None
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON ({error}); delete the directory and run its job again") from None
    version = content.get("schema_version") if isinstance(content, dict) else None
    if version != SCHEMA_VERSION:
        raise OtherVersionError(
            f"{path}: schema version {version}, expected {SCHEMA_VERSION}; "
            "run its job again with this version, or use the version that wrote it"
        )
    try:
        return validate(model, content, str(path))
    except UserError as error:
        raise UserError(
            f"{error}\n{directory}: written by another version; delete it and run its job again"
        ) from None
