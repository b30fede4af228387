"""Run one cell of a probe: fine-tune a checkpoint on some shots of a corpus, and evaluate it.

All checkpoints are fine-tuned with the same settings:

- batches of `TOKENS` tokens, and learning rates that decay linearly from their peaks (`RATES`);
- a number of epochs that depends on the number of shots (`EPOCHS`), and limits of the steps (`STEPS`).

No setting is tuned on the evaluated records: the last step is used, with a threshold of 0.5. A checkpoint that is
measured without shots keeps the thresholds that were fitted for it.
"""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pipelines.models.evaluate import Evaluation, measure, read_records
from pipelines.probe.replay import Kept, Replayed, replayed
from pipelines.probe.shots import drawn
from pipelines.store.storage import StorePath
from pipelines.store.store import Store, now, read_json, write_json
from pipelines.training.short_run import ALONE, MAX_TOKENS, shards_of, train, use_threads_of_task
from ubert.evaluation import MAIN
from ubert.inference.predictor import Predictor
from ubert.model.tokenizer import SPECIAL_FILE, encoder_path, load_tokenizer
from ubert.model.ubert import Shape, UbertModel
from ubert.schema.errors import UserError
from ubert.schema.manifest import MANIFEST, fingerprint
from ubert.schema.record import Record, Split
from ubert.schema.specs.recipe import Recipe

Shots = int | Literal["all"]
TOKENS = 1024  # tokens of a batch
RATES: dict[str, Any] = {"learning_rate": 1e-4, "head_learning_rate": 5e-4}
EPOCHS = ((10, 30), (100, 12), (math.inf, 2))  # (largest number of shots, epochs)
STEPS = 60, 600  # minimum and maximum
SETTINGS: dict[str, Any] = {"tokens": TOKENS, **RATES, "epochs": EPOCHS, "steps": STEPS, "max_tokens": MAX_TOKENS}


class Cell(NamedTuple):
    """A checkpoint, and the data to fine-tune and evaluate it on.

    `source` is a checkpoint's folder or an encoder, and `weights` the hash of its weights. The first `limit`
    records by sampling key are evaluated, also of each split in `kept`. `thresholds` are the checkpoint's own, by
    task, if there are no shots.
    """

    name: str
    source: str
    weights: str
    corpus: str
    version: str
    train: Split
    test: Split
    shots: Shots
    seed: int
    limit: int
    kept: tuple[Kept, ...] = ()
    replay: Replayed | None = None
    thresholds: dict[str, float] | None = None

    @property
    def key(self) -> str:
        """Return the fingerprint by which the result is found again."""
        given, more = self[2:-3], [part for part in self[-3:] if part]
        return fingerprint(*given, SETTINGS, *more, *(["other texts"] if self.train == self.test else []))


def place_of(store: Store, cell: Cell) -> StorePath:
    return store.root / "probes" / f"{cell.key}.json"


def run_cell(cell: Cell, root: StorePath) -> dict[str, Any]:
    """Fine-tune and evaluate, unless the store has the result already. Write the result to the store.

    Raises:
        UserError: the corpus or checkpoint is missing, training fails, or a corpus was ingested again meanwhile.
    """
    use_threads_of_task()
    store = Store(root)
    if (place := place_of(store, cell)).exists():
        return read_json(place)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="ubert-probe-") as folder:
        predictor, trained = tuned(cell, store, Path(folder))
        measured, *others = (
            measure(predictor, corpus=corpus, split=split, limit=cell.limit, root=root)
            for corpus, split in [(cell.corpus, cell.test), *((one.corpus, one.split) for one in cell.kept)]
        )
    _check_versions(cell, store)
    result = {
        **cell._asdict(),
        **trained,
        "task": measured["task"],
        "measured": measured["records"],
        **_main(measured),
        "metrics": measured["metrics"],
        "kept": [{"corpus": one["corpus"], "split": one["split"], **_main(one)} for one in others],
        "replay": cell.replay._asdict() if cell.replay else None,
        "seconds": round(time.perf_counter() - began, 1),
        "created": now(),
    }
    write_json(place, result)
    return result


def _check_versions(cell: Cell, store: Store) -> None:
    """Check that the current corpora, which were read, are those by which the result is found again.

    Raises:
        UserError: a corpus was ingested again since the probe began.
    """
    for corpus, version in [(cell.corpus, cell.version), *((one.corpus, one.version) for one in cell.kept)]:
        if store.current("corpora", corpus)[1].fingerprint != version:
            raise UserError(
                f"corpus {corpus} was ingested again while it was probed; run the same command again, which "
                "probes the new version"
            )


def _main(measured: Evaluation) -> dict[str, Any]:
    """Return the name and value of the main metric."""
    name = MAIN[measured["task"]]
    return {"metric": name, "value": measured["metrics"][name]}


def tuned(cell: Cell, store: Store, folder: Path) -> tuple[Predictor, dict[str, Any]]:
    """Fine-tune the checkpoint. Return it with the numbers of records, steps and tokens.

    Raises:
        UserError: training fails.
    """
    import ubert

    if cell.shots == 0:
        return _untuned(cell), {"records": 0, "steps": 0, "tokens": 0}
    records = training_records(cell, store)
    shards = shards_of(records, cell.source, folder / "shards")
    rows = read_json(shards / MANIFEST)["alignment"][0]
    recipe = Recipe(
        name="probe",
        mixture="probe",
        encoder=cell.source,
        tokens_per_batch=TOKENS,
        packs_per_batch=1,
        steps=steps_of(cell.shots, rows["tokens"]),
        seed=cell.seed,
        **RATES,
        **ALONE,
        **_head_of(cell.source),
    )
    done = {"records": len(records), "steps": recipe.steps, "tokens": rows["tokens"]}
    return ubert.load(train(recipe, shards, folder)), done


def steps_of(shots: Shots, tokens: int) -> int:
    """Return the number of steps for a number of shots with `tokens` tokens in all."""
    epochs = next(epochs for most, epochs in EPOCHS if (math.inf if shots == "all" else shots) <= most)
    least, most = STEPS
    return min(most, max(least, math.ceil(epochs * tokens / TOKENS)))


def is_checkpoint(source: str) -> bool:
    """Return whether this is a checkpoint's folder, not an encoder."""
    return (Path(source) / SPECIAL_FILE).is_file()


def _untuned(cell: Cell) -> Predictor:
    import ubert

    if is_checkpoint(cell.source):
        return ubert.load(cell.source)
    tokenizer = load_tokenizer(cell.source)
    model = UbertModel.new(encoder_path(cell.source), Shape(), vocabulary=tokenizer.vocabulary, seed=cell.seed)
    return Predictor(model, tokenizer)


def _head_of(source: str) -> dict[str, Any]:
    """Return the fields of the recipe that must equal the shape of a checkpoint's head, if it has one."""
    config = Path(encoder_path(source)) / "config.json"
    shape = read_json(config).get("shape") if config.is_file() else None
    return {key: shape[key] for key in ("layout", "table_size")} if shape else {}


def training_records(cell: Cell, store: Store) -> list[Record]:
    """Draw the shots of each category, without the texts that are evaluated, and the replayed records.

    Raises:
        UserError: all texts are evaluated.
    """
    directory, manifest = store.current("corpora", cell.corpus)
    records = list(read_records(directory, manifest, cell.train, None))
    if cell.train == cell.test:
        measured = {(one.text, one.pair) for one in read_records(directory, manifest, cell.test, cell.limit)}
        count = len(records)
        records = [record for record in records if (record.text, record.pair) not in measured]
        if not records:
            raise UserError(
                f"corpus {cell.corpus}: all its {count} {cell.train} records have texts that are evaluated, so "
                "none is left to train on; evaluate fewer with --limit, or leave it out"
            )
    shots = records if cell.shots == "all" else drawn(records, cell.shots, cell.seed)
    return shots + (replayed(cell.replay, len(shots), cell.corpus, cell.seed, store) if cell.replay else [])
