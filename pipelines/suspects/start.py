"""Choose how the models of folds are trained: briefly, from a pretrained model that has not seen the corpus."""

from __future__ import annotations

from pipelines.probe.cell import RATES
from ubert.model import pretrained
from ubert.schema.manifest import CorpusManifest
from ubert.schema.specs.recipe import Recipe
from ubert.training.run_directory import ancestry

START = "universal-small"  # the model that folds start from, unless it has seen the corpus
DEFAULT = Recipe(
    name="suspects",
    mixture="suspects",
    epochs=3,
    tokens_per_batch=512,
    packs_per_batch=1,
    max_tokens=256,
    freeze_words=True,
    **RATES,
)


def default_recipe(manifest: CorpusManifest) -> Recipe:
    """Return `DEFAULT`, starting from `START` if that model was not trained on the corpus."""
    return DEFAULT if seen_by(START, manifest) else starting_from(START)


def starting_from(model: str) -> Recipe:
    """Return `DEFAULT`, starting from a model of the package."""
    return Recipe(**DEFAULT.model_dump() | {"from": model})


def seen_by(model: str, manifest: CorpusManifest) -> list[str]:
    """Return the corpora of a corpus's dataset, or of its twins, that a model of the package was trained on.

    Such a model may have learnt the annotations that it is to judge.
    """
    datasets = {manifest.name, manifest.dataset or manifest.name, *manifest.twins}
    learnt = {source.partition("/")[0] for one in ancestry(pretrained.FOLDER / model) for source in one.sources}
    return sorted(name for name in learnt if any(name == one or name.startswith(f"{one}_") for one in datasets))
