"""Write a model card: a checkpoint's training data with licences, its training, and its results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import yaml

import ubert
from pipelines.pages.markdown import markdown_table
from pipelines.specs import SPECS, dataset_names, dataset_spec
from pipelines.store.storage import StorePath
from pipelines.store.store import Store, read_json
from pipelines.store.warehouse import sql
from pipelines.training.short_run import weights_of
from ubert.inference.thresholds import read_thresholds
from ubert.schema.errors import UserError
from ubert.schema.licence import CLASSES, LicenceClass
from ubert.schema.manifest import MixtureManifest
from ubert.schema.specs.dataset import DatasetSpec
from ubert.training.checkpoints.checkpoint import State, read_state

_USE = """    import ubert
    model = ubert.load("{name}")
    model.predict(["Ada Marlow lives in Ostrava."], task="ner", categories=["person", "city"])
"""
_LIMITS = """- It reads {languages}. Category names in plain words work best: "person", not "PER".
- A small encoder knows little about the world. Check its answers before you rely on them.
- It has learnt the biases of its corpora.
- Scores of categories that no corpus has are lower than others. Lower `threshold` if it finds too little.
"""
_LANGUAGES = {
    "ar": "Arabic", "da": "Danish", "de": "German", "el": "Greek", "en": "English", "es": "Spanish",
    "fr": "French", "he": "Hebrew", "hi": "Hindi", "id": "Indonesian", "it": "Italian", "ja": "Japanese",
    "ko": "Korean", "nl": "Dutch", "pl": "Polish", "pt": "Portuguese", "ru": "Russian", "th": "Thai",
    "tr": "Turkish", "zh": "Chinese",
}  # fmt: skip
_PROBES = """
WITH longest AS (
    SELECT * FROM probes WHERE weights = '{weights}' AND replay IS NULL
    QUALIFY measured = max(measured) OVER (PARTITION BY corpus, shots)),
same AS (SELECT * FROM longest QUALIFY version = arg_max(version, created) OVER (PARTITION BY corpus, shots))
SELECT corpus, metric, shots, seed, arg_max(value, created) AS value FROM same GROUP BY ALL
"""  # a mean has only equal measurements


class Facts(NamedTuple):
    """What a card says about a corpus."""

    task: str
    language: str
    licence: str
    licence_class: LicenceClass


def model_card(checkpoint: Path, name: str, root: StorePath, specs: Path) -> str:
    """Return the card of a checkpoint as Markdown, from its state and from the store that it was trained in.

    Args:
        checkpoint: a checkpoint's folder or a run's.
        name: the model's name on the card.
        specs: the folder of specs. They describe corpora of earlier runs that the store lacks. The project's own
            specs describe those of the models that come with the package.

    Raises:
        UserError: there is no such checkpoint, or its mixture or one of its corpora isn't in the store.
    """
    directory = ubert.checkpoint(checkpoint)
    state, store = read_state(directory), Store(root.absolute())
    if state.recipe.shards not in store.names("mixtures"):
        raise UserError(
            f"{directory}: the store {str(root)!r} lacks its mixture {state.recipe.shards}; name the store that "
            "it was trained in with --root"
        )
    mixture = store.current("mixtures", state.recipe.shards)[1]
    own = {f"{source.corpus}/{source.split}" for source in mixture.sources}
    drawn = f"mixture {mixture.name} of the store {str(root)!r}"
    if missing := sorted(set(state.sources) - own):
        raise UserError(
            f"{directory}: it was trained on {', '.join(missing)}, which {drawn} lacks; name the "
            "store that it was trained in with --root"
        )
    if state.sources and own - set(state.sources):
        raise UserError(
            f"{directory}: {drawn} has sources that it was not trained on: "
            f"{', '.join(sorted(own - set(state.sources)))}; draw it as it was then, or train again"
        )
    before = {source for ancestor in state.ancestry for source in ancestor.sources} - own
    names = [source.partition("/")[0] for source in sorted(own | before)]
    described = {corpus: folder for folder in (SPECS, specs) for corpus in dataset_names(folder)}
    absent = described.keys() - set(store.names("corpora"))
    corpora = {
        corpus: _of_spec(dataset_spec(corpus, described[corpus])) if corpus in absent else _in_store(corpus, store)
        for corpus in names
    }
    # hubs know languages by their ISO 639 codes, without script or region
    languages = sorted({corpus.language.partition("-")[0] for corpus in corpora.values()})
    read = ", ".join(sorted(_LANGUAGES.get(code, f"`{code}`") for code in languages))
    parts = [
        _front(corpora.values(), languages, name),
        f"# {name}\n\n{_summary(directory, state, mixture, corpora)}\n\n{_USE.format(name=name)}",
        f"## Limits\n\n{_LIMITS.format(languages=read)}",
        f"## Results\n\n{_results(directory, store.root, names)}",
        f"## Training\n\n{_training(state)}",
        f"## Corpora\n\n{_corpora(mixture, corpora, sorted(before))}",
    ]
    return "\n".join(parts)


def _in_store(corpus: str, store: Store) -> Facts:
    manifest = store.current("corpora", corpus)[1]
    return Facts(manifest.task, manifest.language, manifest.licence, manifest.licence_class)


def _of_spec(spec: DatasetSpec) -> Facts:
    return Facts(spec.task, spec.language, spec.licence, spec.licence_class or "unstated")


def _front(corpora: Iterable[Facts], languages: Sequence[str], name: str) -> str:
    """Return the metadata that model hubs read."""
    strictest = max((corpus.licence_class for corpus in corpora), key=CLASSES.index)
    content = {
        "language": languages if len(languages) > 1 else languages[0],
        "library_name": "ubert",
        "model_name": name,
        "license": "other",
        "license_name": strictest,
    }
    return f"---\n{yaml.safe_dump(content, sort_keys=False)}---\n"


def _summary(directory: Path, state: State, mixture: MixtureManifest, corpora: dict[str, Facts]) -> str:
    packed = read_json(directory / "config.json").get("words")
    without = "; its word embeddings are not part of this folder" if packed else ""
    tasks = Counter(corpus.task for corpus in corpora.values())
    counted = ", ".join(f"{task} ({count})" for task, count in tasks.most_common())
    return (
        f"One model for {len(corpora)} corpora of {len(tasks)} tasks: {counted}. It classifies, tags, extracts "
        f"and answers with category names that you choose. Encoder: `{state.recipe.encoder}`{without}."
    )


def _results(directory: Path, root: StorePath, trained: Sequence[str]) -> str:
    """Return a table of the probes of these weights, averaged over seeds, and one of the thresholds.

    Args:
        trained: the corpora that were trained on.
    """
    found = sql(root, _PROBES.format(weights=weights_of(directory))).to_pylist()
    lines = ["No probe of these weights is in the store.\n"]
    if found:
        shots = sorted({row["shots"] for row in found}, key=lambda word: (not word.isdecimal(), word.zfill(9)))
        values: dict[tuple[str, str], list[float]] = {}
        for row in found:
            values.setdefault((row["corpus"], row["shots"]), []).append(row["value"])
        metric = {row["corpus"]: row["metric"] for row in found}
        rows = [
            [
                f"{corpus} *" if corpus in trained else corpus,
                metric[corpus],
                *(f"{mean(values[corpus, n]):.3f}" if (corpus, n) in values else "" for n in shots),
            ]
            for corpus in sorted(metric)
        ]
        seen = ", except those with *" if metric.keys() & set(trained) else ""
        lines = [
            f"Corpora that training never saw{seen}, by records of each category that the model was fine-tuned on "
            "(0: none; `ubert probe`):\n",
            markdown_table(["corpus", "metric", *shots], rows),
        ]
    if fitted := read_thresholds(directory):
        splits = " and ".join(sorted({one.split for one in fitted.values()}))
        rows = [
            [task, f"{one.threshold:g}", f"{one.value:.3f}", str(len(one.corpora))] for task, one in fitted.items()
        ]
        lines += [
            f"Thresholds, fitted on {splits} splits of the corpora below:\n",
            markdown_table(["task", "threshold", "mean metric", "corpora"], rows),
        ]
    return "\n".join(lines)


def _training(state: State) -> str:
    recipe = state.recipe.model_dump(
        mode="json", exclude_defaults=True, exclude={"evaluate", "description", "name"}
    )
    rows = [[f"`{key}`", f"`{value}`"] for key, value in recipe.items()]
    minutes = state.seconds / 60
    took = f"{minutes / 60:.1f} hours" if minutes >= 6 else f"{minutes:.1f} minutes"
    spent = f"{state.tokens:,} tokens in {state.step:,} steps, {took}."
    before = [f"{one.run} (step {one.step:,})" for one in state.ancestry]
    chain = f" It began with the weights of {', then '.join(before)}." if before else ""
    described = f"{state.recipe.description} " if state.recipe.description else ""
    return f"{described}{spent}{chain}\n\n" + markdown_table(["recipe", "value"], rows)


def _corpora(mixture: MixtureManifest, corpora: dict[str, Facts], before: Sequence[str]) -> str:
    """Return a row for each training split: those of the mixture, then those that only earlier runs used."""
    classes = Counter(corpus.licence_class for corpus in corpora.values())
    counted = ", ".join(f"{kind} {classes[kind]}" for kind in CLASSES if classes[kind])
    drawn = [[source.corpus, str(source.split), f"{source.records:,}"] for source in mixture.sources]
    drawn += [[*source.split("/"), "earlier run"] for source in before]
    rows = [
        [corpus, split, corpora[corpus].task, corpora[corpus].licence, corpora[corpus].licence_class, records]
        for corpus, split, records in drawn
    ]
    held = f"Held out from training: {', '.join(mixture.held_out)}.\n\n" if mixture.held_out else ""
    return f"Licences by class: {counted}. Licences are in their publishers' words.\n\n{held}" + markdown_table(
        ["corpus", "split", "task", "licence", "class", "records"], rows
    )
