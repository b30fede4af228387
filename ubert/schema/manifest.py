"""Manifests: the content of a directory of the store, and its inputs. They are written last, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, Self, TypeVar

from blake3 import blake3
from pydantic import Field

from ubert.schema.errors import UserError
from ubert.schema.licence import LicenceClass
from ubert.schema.record import SCHEMA_VERSION, Split, Task
from ubert.schema.yaml_file import Strict, validate

MANIFEST = "manifest.json"
RECIPE = "recipe.yaml"  # of a run
FILES = "files.parquet"  # source files of a corpus; there may be as many as records
ATTEMPT = "attempt.json"  # manifest of a corpus that was not published, because too many rows were rejected


def fingerprint(*parts: Any) -> str:
    """Hash `parts` (any JSON values) to 16 hex digits."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return blake3(text.encode()).hexdigest(16 // 2)


class Manifest(Strict):
    """Base of all manifests.

    Attributes:
        created: UTC, ISO 8601. The newest manifest of a name is the current one.
    """

    name: str
    fingerprint: str
    schema_version: int = SCHEMA_VERSION
    created: str


class SplitCounts(Strict):
    """Totals over the source files of a split: records = kept + rejected.

    Attributes:
        warnings: warning -> number of occurrences in the kept records.
    """

    split: Split
    files: int
    bytes: int
    records: int
    kept: int
    rejected: int
    warnings: dict[str, int] = Field(default_factory=dict)


class CorpusManifest(Manifest):
    """`corpora/<name>/<fingerprint>/manifest.json`, beside the `parts` and `FILES`."""

    task: Task
    language: str
    licence: str
    licence_class: LicenceClass = "unstated"
    dataset: str = ""  # the folder of its raw files
    twins: list[str] = Field(default_factory=list)  # datasets with the same texts
    upstream: str | None
    # Kind of category that was read from the data -> label -> number of occurrences.
    from_data: dict[str, dict[str, int]] = Field(default_factory=dict)
    splits: list[SplitCounts]
    parts: list[str]
    reject_parts: list[str]
    mismatch_parts: list[str]


class DrawnCategory(Strict):
    """A category of a balanced source: the `records` whose rarest category it is, and the draws from them."""

    category: str
    records: int
    draws: int


class RealisedSource(Strict):
    """What a mixture drew from one source.

    Attributes:
        available: records that match the source.
        dropped_leaks: records that are also in an evaluation split.
        dropped_duplicates: records that another record of the mixture repeats.
        dropped_held_out: records with a text of a held-out corpus.
        dropped_suspects: records whose annotations are suspect.
        records: distinct records that were drawn.
        draws: drawn records, copies included.
        epochs: draws per record that may be drawn.
        characters: characters of all draws.
        tokens: tokens of all draws, estimated from the source's first texts.
        phases: draws of each phase.
    """

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

    @property
    def dropped(self) -> int:
        """Number of records that match but are dropped."""
        return self.dropped_leaks + self.dropped_duplicates + self.dropped_held_out + self.dropped_suspects


class MixtureManifest(Manifest):
    """`mixtures/<name>/<fingerprint>/manifest.json`.

    Attributes:
        encoder: encoder whose tokenizer counted the tokens.
        held_out: corpora whose texts are excluded, name -> fingerprint.
    """

    sql: str
    encoder: str | None = None
    held_out: dict[str, str] = Field(default_factory=dict)
    sources: list[RealisedSource]

    @property
    def versions(self) -> dict[str, str]:
        """The versions of the corpora that it was drawn from: corpus -> fingerprint."""
        return {source.corpus: source.corpus_fingerprint for source in self.sources}

    @property
    def dropped(self) -> int:
        """Number of records that match but are dropped; `dropped.parquet` lists them with the reason."""
        return sum(source.dropped for source in self.sources)

    @property
    def phases(self) -> int:
        """Number of phases of an epoch."""
        return len(self.sources[0].phases)


class AuditManifest(Manifest):
    """`audits/<name>/<fingerprint>/manifest.json`.

    Attributes:
        corpora: audited corpora, name -> fingerprint.
        parameters: settings of the audit.
        counts: numbers of compared items and of findings.
    """

    corpora: dict[str, str]
    parameters: dict[str, str | int | float | list[str]]
    counts: dict[str, int]


class Alignment(Strict):
    """How the texts and spans of one corpus's drawn records map to tokens.

    spans = exact + widened + narrowed + lost.

    Attributes:
        rows: rows, windows included.
        tokens: tokens of text and pair in all rows.
        cut: records that have a part of the text or the pair in no row.
        exact: spans with the same boundaries as their tokens.
        widened: spans whose tokens cover more than the span.
        narrowed: spans that begin or end with characters of no token, such as white space.
        lost: reason -> spans.
        links: relations, arguments of events, and next mentions of a cluster.
        lost_links: reason -> links whose ends are together in no row.
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
    """One file of a shard set. `rows` and `tokens` of a shard include rows that the mixture doesn't draw."""

    path: str
    rows: int
    tokens: int
    blake3: str


class ShardManifest(Manifest):
    """`shards/<mixture>/<fingerprint>/manifest.json`.

    Attributes:
        tokenizer: hash of the tokenizer.
        phases: number of phases.
        sources: splits that the mixture drew from (corpus/split).
        instructions: task -> its instruction, for each task whose records all have the same one.
        cut_categories: number of category names, questions and instructions that were truncated.
    """

    mixture: str
    mixture_fingerprint: str
    encoder: str
    tokenizer: str
    max_tokens: int
    phases: int
    sources: list[str] = Field(default_factory=list)
    instructions: dict[str, str] = Field(default_factory=dict)
    shards: list[ShardFile]
    draws: ShardFile
    categories: ShardFile
    prompts: ShardFile
    cut_categories: int
    alignment: list[Alignment]


class Ancestor(Strict):
    """A checkpoint that a run started from.

    Attributes:
        run: name of its run.
        step: its step.
        weights: blake3 of its weights.
        sources: splits that it was trained on (corpus/split).
    """

    run: str
    step: int
    weights: str
    sources: list[str] = Field(default_factory=list)


class RunManifest(Manifest):
    """`runs/<name>/manifest.json` of a finished run. Its `fingerprint` is of recipe, shards and ancestors.

    Attributes:
        seconds: time spent in training steps.
        loss: loss of the last step.
        checkpoint: path relative to the run.
        best: path of the best checkpoint relative to the run, if the recipe keeps one.
        ancestry: the runs that its initial weights come from, oldest first.
    """

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
    """The folder of a manifest: a `Path`, or an object with these members."""

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
    """The manifest has another schema version."""


def read_manifest(model: type[AnyManifest], directory: Folder, file: str = MANIFEST) -> AnyManifest:
    """Read the manifest of a directory.

    Raises:
        OtherVersionError: the manifest has another schema version.
        UserError: there is no manifest, it is not JSON, or a key is wrong.
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


def read_manifests(
    folder: AnyFolder, model: type[AnyManifest], pattern: str = f"*/{MANIFEST}"
) -> tuple[list[tuple[AnyFolder, AnyManifest]], list[tuple[AnyFolder, OtherVersionError]]]:
    """Return the directories whose manifest is of this version, and those of other versions with their errors."""

    def read(path: AnyFolder) -> AnyManifest | OtherVersionError:
        try:
            return read_manifest(model, path.parent, path.name)
        except OtherVersionError as error:
            return error

    paths = list(folder.glob(pattern))
    with ThreadPoolExecutor() as pool:  # an object store answers many requests at once
        found = [(path.parent, result) for path, result in zip(paths, pool.map(read, paths), strict=True)]
    made = [(directory, result) for directory, result in found if not isinstance(result, OtherVersionError)]
    return made, [(directory, result) for directory, result in found if isinstance(result, OtherVersionError)]
