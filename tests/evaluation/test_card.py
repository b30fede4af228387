"""Model cards: corpora, licences, training and results come from the store."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from handmade import ner, sentiment
from tiny_run import make_encoder
from typer.testing import CliRunner
from worlds import put_corpus

from pipelines.cli.commands import app
from pipelines.mixtures.mix import mix
from pipelines.mixtures.replay import trained_on
from pipelines.models.card import model_card
from pipelines.probe import cell as cells
from pipelines.probe.cell import Cell, place_of, run_cell
from pipelines.probe.probe import splits, start
from pipelines.store.store import Store, read_json, write_json
from pipelines.training.short_run import shards_of
from ubert.inference.thresholds import FILE, Fitted, to_json
from ubert.schema.errors import UserError
from ubert.schema.manifest import Ancestor
from ubert.schema.specs.mixture import Mixture
from ubert.schema.specs.recipe import Recipe, Replay
from ubert.training import loop
from ubert.training.checkpoints import checkpoint

REVIEWS, PEOPLE = [sentiment(i, 4) for i in range(60)], [ner(i) for i in range(20)]
SHOP = {"name": "shop", "hold_out": ["people"], "sources": [{"corpus": "reviews"}]}

SPECS = Path("corpus_specs")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a corpus that is trained on, one that is held out, and a run of three steps."""
    root = tmp_path_factory.mktemp("store")
    put_corpus(root, "reviews", REVIEWS, licence="our | own", licence_class="research-only")
    put_corpus(root, "people", PEOPLE, licence_class="public-domain")
    mix(Mixture.model_validate(SHOP), root=root)
    encoder = str(make_encoder(root / "encoder"))
    shards = shards_of(REVIEWS, encoder, root / "given")
    recipe = Recipe(name="run", mixture="shop", encoder=encoder, table_size=8, steps=3, dropout=0.25)
    made = loop.train(recipe, shards=shards, run=root / "runs" / "run", worker=loop.Worker(progress=False))
    fitted = Fitted(threshold=0.35, value=0.5, corpora=["people"], split="validation", records=4)
    (made / FILE).write_text(to_json({"ner": fitted}))
    return root


def rows(card: str) -> list[list[str]]:
    lines = [line.replace("\\|", "/") for line in card.splitlines() if "|" in line]
    return [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines]


def test_a_card_says_what_a_run_was_trained_on(root: Path) -> None:
    card = model_card(root / "runs" / "run", "shop", root, SPECS)
    front = ["language: en", "library_name: ubert", "model_name: shop", "license: other"]
    assert card.startswith("\n".join(["---", *front, "license_name: research-only", "---", "", "# shop\n"]))
    assert "- It reads English. Category names" in card
    assert ["reviews", "train", "classification", "our / own", "research-only", "60"] in rows(card)
    assert "Held out from training: people." in card
    assert ["ner", "0.35", "0.500", "1"] in rows(card)
    assert ["`dropout`", "`0.25`"] in rows(card)
    state = checkpoint.read_state(checkpoint.latest(root / "runs" / "run") or root)
    assert f"{state.tokens:,} tokens in 3 steps" in card
    assert "No probe of these weights" in card
    assert "word embeddings are not part" not in card, "only a packed checkpoint leaves them out"


def test_a_card_has_the_probes_of_its_weights(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "STEPS", (2, 4))
    manifest = Store(root).current("corpora", "reviews")[1]
    first = Cell(*start("run", Store(root)), "reviews", manifest.fingerprint, *splits(manifest), 2, 0, 20)
    values = [run_cell(cell, root)["value"] for cell in (first, first._replace(seed=1))]
    place = place_of(Store(root), first)
    newer = {**read_json(place), "value": 7.0, "created": "2040-01-01"}
    replayed = {**newer, "replay": {"mixture": "known", "share": 0.2}}
    write_json(place.with_name("replayed.json"), replayed)  # type: ignore[union-attr]
    write_json(place.with_name("other.json"), {**newer, "weights": "0" * 16})  # type: ignore[union-attr]
    card = model_card(root / "runs" / "run", "shop", root, SPECS)
    assert ["reviews *", "accuracy", f"{sum(values) / 2:.3f}"] in rows(card)
    assert "Corpora that training never saw, except those with *, by records" in card
    shorter = {**read_json(place), "value": 7.0, "measured": 5, "created": "2040-01-01"}
    write_json(place.with_name("shorter.json"), shorter)  # type: ignore[union-attr]
    of_others = {**read_json(place), "value": 7.0, "version": "0" * 16, "seed": 5, "created": "2020-01-01"}
    write_json(place.with_name("of-others.json"), of_others)  # type: ignore[union-attr]
    unseen = {**read_json(place), "corpus": "people", "metric": "span_f1", "value": 0.25}
    write_json(place.with_name("unseen.json"), unseen)  # type: ignore[union-attr]
    card = model_card(root / "runs" / "run", "shop", root, SPECS)
    assert ["reviews *", "accuracy", f"{sum(values) / 2:.3f}"] in rows(card)
    assert ["people", "span_f1", "0.250"] in rows(card)
    older = {**read_json(place), "value": 7.0, "created": "2020-01-01"}  # with other thresholds
    write_json(place.with_name("older.json"), older)  # type: ignore[union-attr]
    assert model_card(root / "runs" / "run", "shop", root, SPECS) == card
    for shots in ("all", 10):
        run_cell(first._replace(shots=shots), root)
    card = model_card(root / "runs" / "run", "shop", root, SPECS)
    assert ["corpus", "metric", "2", "10", "all"] in rows(card)


def test_a_card_names_the_splits_of_its_thresholds(root: Path, tmp_path: Path) -> None:
    directory = checkpoint.latest(root / "runs" / "run")
    assert directory
    copy = shutil.copytree(directory, tmp_path / "step")
    fitted = [
        Fitted(threshold=0.3, value=0.5, corpora=["a"], split=split, records=4) for split in ("test", "train")
    ]
    (copy / FILE).write_text(to_json(dict(zip(("ner", "qa"), fitted, strict=True))))
    assert "Thresholds, fitted on test and train splits" in model_card(copy, "shop", root, SPECS)


def test_a_card_is_refused_after_the_mixture_got_more_sources(root: Path) -> None:
    directory = checkpoint.latest(root / "runs" / "run")
    assert directory
    state = checkpoint.read_state(directory)
    checkpoint.write_state(directory, state.model_copy(update={"sources": ["reviews/train"]}))
    larger = {"name": "shop", "sources": [{"corpus": "reviews"}, {"corpus": "people"}]}
    mix(Mixture.model_validate(larger), root=root)
    with pytest.raises(UserError, match="has sources that it was not trained on: people/train; draw it as it was"):
        model_card(directory, "shop", root, SPECS)
    mix(Mixture.model_validate(SHOP), root=root)
    assert "# shop" in model_card(directory, "shop", root, SPECS)
    checkpoint.write_state(directory, state)


def test_the_command_writes_a_file(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "README.md"
    result = CliRunner().invoke(app, ["card", "run", "--root", str(root), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "# run\n" in out.read_text()


def test_the_folder_that_one_is_in_gives_the_model_its_name(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root / "runs" / "run")
    result = CliRunner().invoke(app, ["card", ".", "--root", str(root)])
    assert "model_name: run\n" in result.stdout and "# run\n" in result.stdout


def test_corpora_of_earlier_runs_are_listed_too(root: Path) -> None:
    directory = checkpoint.latest(root / "runs" / "run")
    assert directory
    state = checkpoint.read_state(directory)
    before = Ancestor(run="before", step=3, weights="0" * 64, sources=["people/train", "reviews/train"])
    checkpoint.write_state(directory, state.model_copy(update={"ancestry": [before]}))
    card = model_card(directory, "shop", root, SPECS)
    assert ["people", "train", "ner", "CC0-1.0", "public-domain", "earlier run"] in rows(card)
    assert "It began with the weights of before (step 3)." in card
    assert "license_name: research-only" in card and "public-domain 1, research-only 1" in card
    assert "2 corpora of 2 tasks: " in card
    assert sum(row[:2] == ["reviews", "train"] for row in rows(card)) == 1
    checkpoint.write_state(directory, state)


@pytest.mark.parametrize("own", [True, False])
def test_specs_describe_corpora_of_earlier_runs_that_the_store_lacks(
    root: Path, tmp_path: Path, own: bool
) -> None:
    """A model of the package was trained on corpora that only the project's own specs describe."""
    specs = SPECS if own else tmp_path
    directory = checkpoint.latest(root / "runs" / "run")
    assert directory
    state = checkpoint.read_state(directory)
    before = Ancestor(run="before", step=3, weights="0" * 64, sources=["trec/train"])
    checkpoint.write_state(directory, state.model_copy(update={"ancestry": [before]}))
    (row,) = (row for row in rows(model_card(directory, "shop", root, specs)) if row[0] == "trec")
    assert row == ["trec", "train", "classification", "not stated (repository MIT)", "unstated", "earlier run"]
    neither = Ancestor(run="before", step=3, weights="0" * 64, sources=["nowhere/train"])
    checkpoint.write_state(directory, state.model_copy(update={"ancestry": [neither]}))
    with pytest.raises(UserError, match="corpora/nowhere: nothing here yet"):
        model_card(directory, "shop", root, specs)
    checkpoint.write_state(directory, state)


@pytest.mark.parametrize(
    ("own", "earlier", "codes", "sentence"),
    [
        ("zh-Hant", "zh", "zh", "It reads Chinese."),
        ("en", "de", ["de", "en"], "It reads English, German."),
        ("no", "no", "no", "It reads `no`."),  # `no` without quotes is false in YAML
    ],
)
def test_a_card_names_the_languages_of_its_corpora(
    root: Path, tmp_path: Path, own: str, earlier: str, codes: str | list[str], sentence: str
) -> None:
    put_corpus(tmp_path, "reviews", REVIEWS, language=own)
    put_corpus(tmp_path, "people", PEOPLE, language=earlier)
    mix(Mixture.model_validate(SHOP), root=tmp_path)
    directory = Path(shutil.copytree(checkpoint.latest(root / "runs" / "run") or root, tmp_path / "copied"))
    before = Ancestor(run="before", step=3, weights="0" * 64, sources=["people/train"])
    checkpoint.write_state(directory, checkpoint.read_state(directory).model_copy(update={"ancestry": [before]}))
    card = model_card(directory, "shop", tmp_path, SPECS)
    assert yaml.safe_load(card.split("---")[1])["language"] == codes
    assert f"- {sentence} Category names" in card


def test_a_store_of_other_data_is_refused(root: Path, tmp_path: Path) -> None:
    put_corpus(tmp_path, "people", PEOPLE)
    mix(Mixture.model_validate({"name": "shop", "sources": [{"corpus": "people"}]}), root=tmp_path)
    directory = checkpoint.latest(root / "runs" / "run")
    assert directory
    state = checkpoint.read_state(directory)
    checkpoint.write_state(directory, state.model_copy(update={"sources": ["reviews/train"]}))
    with pytest.raises(UserError, match=r"it was trained on reviews/train, which mixture shop of .* lacks"):
        model_card(directory, "shop", tmp_path, SPECS)


def test_a_card_needs_the_store_of_the_training(root: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="lacks its mixture shop; name the store that it was trained"):
        model_card(root / "runs" / "run", "shop", tmp_path / "other", SPECS)
    with pytest.raises(UserError, match=r"state\.json: No such file or directory; give a checkpoint"):
        model_card(tmp_path, "shop", root, SPECS)


def test_a_card_tells_the_hours_of_all_steps(root: Path) -> None:
    directory = checkpoint.latest(root / "runs" / "run")
    assert directory
    state = checkpoint.read_state(directory)
    spent = {"seconds": 5400.0, "step": 12_345, "tokens": 6_789_000}
    moved = directory.with_name("copied")
    checkpoint.write_state(Path(shutil.copytree(directory, moved)), state.model_copy(update=spent))
    assert "6,789,000 tokens in 12,345 steps, 1.5 hours." in model_card(moved, "shop", root, SPECS)
    checkpoint.write_state(moved, state.model_copy(update={**spent, "seconds": 90.0}))
    assert "12,345 steps, 1.5 minutes." in model_card(moved, "shop", root, SPECS)
    shutil.rmtree(moved)


def test_the_card_of_a_run_with_replay_lists_what_was_replayed(root: Path) -> None:
    put_corpus(root, "old", [sentiment(i, 4, corpus="old") for i in range(60, 80)])
    (root / "specs" / "mixtures").mkdir(parents=True)
    for spec in (SHOP, {"name": "base", "sources": [{"corpus": "old"}]}):
        (root / "specs" / "mixtures" / f"{spec['name']}.yaml").write_text(yaml.safe_dump(spec))
    directory = shutil.copytree(checkpoint.latest(root / "runs" / "run") or root, root / "replayed")
    state = checkpoint.read_state(directory)
    recipe = state.recipe.model_copy(update={"replay": Replay(mixture="base", share=0.2)})
    replayed = mix(trained_on(recipe, root=root, specs=root / "specs"), root=root)
    sources = [f"{source.corpus}/{source.split}" for source in replayed.sources]
    checkpoint.write_state(directory, state.model_copy(update={"recipe": recipe, "sources": sources}))
    (row,) = (row for row in rows(model_card(directory, "shop", root, SPECS)) if row[0] == "old")
    assert row[:3] == ["old", "train", "classification"] and row[-1] == "15"
