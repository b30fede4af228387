"""Specs: every error is listed with file and key, and the schemas for editors agree with the checks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from jsonschema import Draft202012Validator as Validator

from pipelines.sources import reader
from pipelines.specs import (
    dataset_names,
    dataset_spec,
    file_options,
    json_schemas,
    mixture,
    recipe,
    specs_folder,
    with_same_rows,
    write_json_schemas,
)
from ubert.schema.errors import UserError
from ubert.schema.specs.dataset import Categories
from ubert.schema.specs.mixture import Mixture
from ubert.schema.specs.recipe import Prompting, Recipe
from ubert.schema.wrong_keys import shortened
from ubert.schema.yaml_file import read_yaml, validate

OURS = specs_folder(None)
GOOD: dict[str, Any] = {
    "name": "reviews",
    "description": "Film reviews.",
    "task": "classification",
    "language": "en",
    "licence": "CC0-1.0",
    "instruction": "sentiment",
    "format": "table",
    "options": {"columns": ["label", "text"]},
    "files": [{"split": "train", "path": "train.tsv"}],
    "map": {"text": "text", "label": "label"},
    "categories": {"label": {"0": "bad", "1": "good"}},
}


@pytest.fixture(scope="module")
def schema() -> Validator:
    """The schema for editors, checked once: that takes a hundred times as long as the check of a spec."""
    schema = json_schemas()["dataset"]
    Validator.check_schema(schema)
    return Validator(schema)


def write(folder: Path, content: Any, kind: str = "datasets", name: str = "reviews") -> Path:
    path = folder / kind / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
    return path


def errors(folder: Path, **changes: Any) -> list[str]:
    """The lines of the error that a good spec with `changes` makes, without the file that each begins with."""
    path = write(folder, {**GOOD, **changes})
    with pytest.raises(UserError) as caught:
        dataset_spec("reviews", folder)
    lines = str(caught.value).splitlines()
    assert all(line.startswith(f"{path}: ") for line in lines)
    return [line.removeprefix(f"{path}: ") for line in lines]


def test_a_good_spec_is_read(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    spec = dataset_spec("reviews", tmp_path)
    assert (spec.folder, [category.name for category in spec.categories.all()]) == ("reviews", ["bad", "good"])


def test_a_spec_that_extends_another_states_what_differs(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    other = {"name": "films", "extends": "reviews", "task": "ner", "instruction": "find films"}
    own = {"map": {"label": None, "spans": {"each": "films[]", "as": "film", "words": "."}}}
    (tmp_path / "datasets" / "films.yaml").write_text(
        yaml.safe_dump({**other, **own, "categories": {"label": None, "entity": {"film": "film"}}})
    )
    base, spec = dataset_spec("reviews", tmp_path), dataset_spec("films", tmp_path)
    assert (spec.folder, spec.files, spec.licence) == ("reviews", base.files, base.licence)
    assert (spec.map.text, spec.map.label) == (base.map.text, None)
    assert [category.kind for category in spec.categories.all()] == ["entity"]


def test_a_number_beside_a_label_needs_the_labels_taken_away(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    stars = {"name": "stars", "extends": "reviews", "task": "regression", "map": {"label": None, "value": "score"}}
    path = write(tmp_path, {**stars, "categories": {"value": [1, 5]}}, name="stars")
    with pytest.raises(UserError, match=r"remove `label` \(`label: ` if inherited\)"):
        dataset_spec("stars", tmp_path)
    path.write_text(yaml.safe_dump({**stars, "categories": {"label": None, "value": [1, 5]}}))
    assert [category.name for category in dataset_spec("stars", tmp_path).categories.all()] == ["1", "5"]


STARS: dict[str, Any] = {
    "task": "regression",
    "instruction": "stars",
    "map": {"label": None, "value": "score"},
    "categories": {"label": None, "value": [1, 5]},
}


def test_a_spec_has_further_corpora_of_its_rows(tmp_path: Path) -> None:
    write(tmp_path, {**GOOD, "also": {"stars": STARS, "films": {"task": "text", "map": {"label": None}}}})
    write(tmp_path, {"name": "more", "extends": "stars", "instruction": "more stars"}, name="more")
    assert dataset_names(tmp_path) == ["films", "more", "reviews", "stars"]
    assert with_same_rows(["reviews", "stars", "more"], tmp_path) == ["reviews", "films", "stars", "more"]
    base, stars, more = (dataset_spec(name, tmp_path) for name in ("reviews", "stars", "more"))
    assert (base.task, stars.task, more.task) == ("classification", "regression", "regression")
    assert (stars.name, stars.folder, stars.files, stars.map.text) == ("stars", "reviews", base.files, ["text"])
    assert (stars.map.label, [category.name for category in stars.categories.all()]) == (None, ["1", "5"])
    assert (more.folder, more.instruction) == ("reviews", "more stars")


@pytest.mark.parametrize(
    ("also", "said"),
    [
        ({"stars": {**STARS, "format": "jsonl"}}, r"also\.stars\.format: unknown key; .* `extends: reviews`"),
        ({"stars": {"map": {}}}, r"also\.stars: expected `task`"),
        ({"Stars": STARS}, r"also\.Stars: expected a name of lower-case letters"),
        ({"films": STARS}, r"also\.films: .*films\.yaml has a spec of this name"),
        (["stars"], r"also: expected names of further corpora"),
        ({}, r"also: expected names of further corpora"),
        ({"stars": 3}, r"also\.stars: expected `task`"),
        ({3: STARS}, r"also\.3: expected a name of lower-case letters"),
        ({"reviews": STARS}, r"also\.reviews: the spec itself has this name"),
    ],
)
def test_a_wrong_corpus_of_the_same_rows_is_reported(tmp_path: Path, also: Any, said: str) -> None:
    write(tmp_path, {**GOOD, "also": also})
    write(tmp_path, {"name": "films", "extends": "reviews"}, name="films")
    with pytest.raises(UserError, match=rf"reviews\.yaml: {said}"):
        dataset_names(tmp_path)


def test_a_further_corpus_with_the_name_of_its_spec_is_no_endless_loop(tmp_path: Path) -> None:
    write(tmp_path, {**GOOD, "also": {"reviews": STARS}})
    with pytest.raises(UserError, match=r"reviews\.yaml: also\.reviews: the spec itself has this name"):
        dataset_spec("reviews", tmp_path)


def test_an_error_of_a_further_corpus_names_its_key(tmp_path: Path, schema: Validator) -> None:
    wrong = {**GOOD, "also": {"stars": {**STARS, "map": {"value": "score"}}}}
    write(tmp_path, wrong)
    with pytest.raises(UserError, match=r"reviews\.yaml: also\.stars\.map: .* task regression needs value"):
        dataset_spec("stars", tmp_path)
    schema.validate({**GOOD, "also": {"stars": STARS}})
    with pytest.raises(jsonschema.ValidationError):
        schema.validate({**GOOD, "also": {"stars": {**STARS, "files": []}}})


@pytest.mark.parametrize("base", ["films", "nowhere", ["reviews"]])
def test_a_spec_extends_another_one_that_is_there(tmp_path: Path, base: Any) -> None:
    write(tmp_path, GOOD)
    (tmp_path / "datasets" / "films.yaml").write_text(yaml.safe_dump({"name": "films", "extends": base}))
    with pytest.raises(UserError, match=r"films\.yaml: extends|nowhere\.yaml: no such file"):
        dataset_spec("films", tmp_path)


def test_what_extends_or_holds_itself_by_way_of_others_is_reported(tmp_path: Path) -> None:
    for name, inside in (("a", "b"), ("b", "c"), ("c", "a")):
        write(tmp_path, {"name": name, "extends": inside}, name=name)
        write(tmp_path, {"name": name, "sources": [{"mixture": inside}]}, "mixtures", name)
    with pytest.raises(UserError, match=r"a\.yaml: extends: the spec extends itself, through b;"):
        dataset_spec("a", tmp_path)
    with pytest.raises(UserError, match=r"c\.yaml: sources: a contains this mixture"):
        mixture("a", tmp_path)


def test_a_key_with_nothing_takes_the_inherited_one_away(tmp_path: Path) -> None:
    write(tmp_path, {**GOOD, "error_budget": 0.5, "upstream": {"url": "https://host"}})
    write(tmp_path, {"name": "films", "extends": "reviews", "error_budget": None, "upstream": None}, name="films")
    spec = dataset_spec("films", tmp_path)
    assert (spec.error_budget, spec.upstream, spec.licence) == (0.01, None, "CC0-1.0")


@pytest.mark.parametrize(
    ("categories", "said"),
    [
        (
            {"label": [True, "maybe"]},
            "categories.label.true.[key]: Input should be a valid string, got true; quote",
        ),
        ({"label": [0, 1]}, 'categories.label.0.[key]: Input should be a valid string, got 0; quote it: "0"'),
        ({"label": [{"a": "b"}]}, "categories.label: expected keys with values, got"),
        (
            {"label": ["a"], "relation": [False]},
            "categories.relation.0.label: Input should be a valid string, got false; quote it: YAML",
        ),
    ],
)
def test_labels_without_quotes_are_reported_in_a_list_too(
    tmp_path: Path, categories: dict[str, Any], said: str
) -> None:
    assert errors(tmp_path, categories=categories)[0].startswith(said)


def test_options_that_are_wrong_for_every_file_are_reported_once(tmp_path: Path) -> None:
    files = [{"split": split, "path": split} for split in ("train", "test")]
    assert len(errors(tmp_path, files=files, options={"columns": ["label", "text"], "delimiter": ","})) == 1
    mended = [{**entry, "options": {"columns": ["label", "text"]}} for entry in files]
    write(tmp_path, {**GOOD, "files": mended, "options": {"columns": []}})
    assert dataset_spec("reviews", tmp_path).options == {"columns": []}


def test_all_errors_of_a_spec_are_listed_with_their_keys(tmp_path: Path) -> None:
    found = errors(
        tmp_path,
        name="films",
        licens="MIT",
        task="sentiment",
        options={"columns": [], "delimiter": ","},
        files=[{"split": "training", "path": "../x", "blake3": "12", "encoding": "utf-16"}],
        categories={"label": {0: "bad"}},
    )
    keys = [line.partition(":")[0] for line in found]
    assert sorted(keys) == sorted(
        [
            "name",
            "licens",
            "task",
            "options.columns",
            "options.delimiter",
            "files.0.split",
            "files.0.path",
            "files.0.blake3",
            "files.0.encoding",
            "categories.label.0.[key]",
        ]
    )
    assert "licens: unknown key; did you mean licence?" in found


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        (
            {"map": {"text": "text"}},
            "map: in addition to text, task classification needs label, or candidates and label, "
            "or candidate_flags and candidates, or label_flags; got nothing",
        ),
        (
            {"map": {"text": "t", "label": "l", "pair": "p"}},
            "map: in addition to text, task classification needs label",
        ),
        ({"map": {"text": "t", "label": "l", "scheme": "BIOES"}}, "map: scheme: no effect here; remove it"),
        (
            {"task": "ner"},
            "map: in addition to text, task ner needs spans, or standoff, or events, or events and spans "
            "(and may have candidates); got label",
        ),
        (
            {
                "task": "choice",
                "map": {"text": "t", "label": "l", "candidates": {"A": "a"}, "candidate_keys": "k"},
            },
            "map: candidate_keys: no effect here, because `candidates` has keys",
        ),
        ({"task": "coref"}, "map: in addition to text, task coref needs spans, or standoff (and may have links)"),
        ({"map": {"label": "l"}}, "map: expected one of chunks, text, tokens, got none of them"),
        ({"map": {"text": "a..b", "label": "l"}}, "map.text.0: expected keys joined by dots"),
        ({"categories": {}}, "categories: task classification needs `label`"),
        ({"format": "tabel"}, "format: expected one of "),
        ({"categories": {"from_data": None}}, "categories.from_data: Input should be a valid list"),
        ({"categories": {"from_data": "label"}}, "categories.from_data: Input should be a valid list"),
        ({"options": {}}, "options: expected `columns`, or `header: true`"),
        ({"options": {"columns": ["a", "a"]}}, "options: column 'a' is named twice"),
        (
            {"files": [dict(entry) for entry in GOOD["files"] * 2]},
            "files: named twice in one split: train.tsv of train",
        ),
        ({"files": []}, "files: expected at least 1 item, got []"),
        (
            {"files": [{"split": "train", "path": "a", "options": {"rest": 3}}]},
            "files.0.options.rest: Input should be a valid boolean",
        ),
        (
            {
                "files": [
                    {"split": "train", "path": "a", "options": {"separator": ","}},
                    {"split": "test", "path": "b", "options": {"rest": 3}},
                ]
            },
            "files.1.options.rest: Input should be a valid boolean",
        ),
        (
            {"categories": {"label": {"a": "b"}, "relation": [{"label": "r", "name": "r", "head": "x"}]}},
            "categories: relation 'r' joins 'x', which is not a label of `entity`",
        ),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(tmp_path: Path, changes: Any, error: str) -> None:
    assert any(line.startswith(error) for line in errors(tmp_path, **changes)), errors(tmp_path, **changes)


def test_a_default_is_not_shown_as_given(tmp_path: Path) -> None:
    write(tmp_path, {key: value for key, value in GOOD.items() if key != "categories"})
    with pytest.raises(UserError, match=r"task classification needs `label`; list its categories there$"):
        dataset_spec("reviews", tmp_path)


@pytest.mark.parametrize("path", ["/etc/passwd", "~/x", "a/../../x", "..", "a\\..\\x", "a\0b"])
def test_a_path_stays_inside_its_folder(tmp_path: Path, path: str) -> None:
    (error,) = errors(tmp_path, files=[{"split": "train", "path": path}])
    assert error.startswith("files.0.path: expected a path inside the dataset's folder")


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("parallel", {"beside": {"a": "../x"}}),
        ("brat", {"annotations": ["/../x"]}),
        ("brat", {"annotations": [".a/b"]}),
    ],
)
def test_files_beside_the_named_one_stay_in_its_folder(format: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="should match pattern"):
        reader(format).Options.model_validate(options)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "hex", "rot13", "utf9", "utf-8-sig"])
def test_only_text_encodings_that_keep_line_ends_are_taken(tmp_path: Path, encoding: str) -> None:
    (error,) = errors(tmp_path, files=[{"split": "train", "path": "a", "encoding": encoding}])
    assert error.startswith("files.0.encoding: expected a text encoding in which a line end is one byte")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "a: [\n",
            "not valid YAML: line 2, column 1: while parsing a flow node, did not find expected node content; ",
        ),
        (
            "a:\n  - b\n c: d",
            "line 3, column 2: while parsing a block mapping from line 1 on, did not find expected key; check",
        ),
        (
            "a: \0",
            "not valid YAML: unacceptable character #x0000: control characters are not allowed in the file,",
        ),
        ("", "(whole file): expected keys with values (name, dataset, description, task,"),
        ("- a", "(whole file): expected keys with values (name,"),
        ("name: reviews\nname: films", "not valid YAML: line 2, column 1: key 'name' given twice"),
        (
            "a: !!python/object/apply:os.getcwd []",
            "not valid YAML: line 1, column 4: could not determine a constructor",
        ),
        ("a: &a [*a]", "alias *a: aliases are not supported"),
        ("a: 1\nb: 2021-02-30", "'2021-02-30' cannot be read as timestamp (day is out of range for month)"),
        ("a: 2021-01-01T25:00:00Z", "cannot be read as timestamp"),
        ("a: !!timestamp x", "'x' cannot be read as timestamp"),
        ("a: 0x_", "'0x_' cannot be read as int"),
        ("a: [0b_]", "line 1, column 5: '0b_' cannot be read as int"),
        ("a: !!int x", "'x' cannot be read as int"),
        ("a: !!int ''", "'' cannot be read as int"),
        ("a: 1" + ":00" * 200 + ".5", "cannot be read as float"),
        ("a: !!bool x", "'x' cannot be read as bool"),
        ("a: {010: ten}", "'010' cannot be read as int (in YAML it is the number 8); put text in quotes"),
        ("a: [12:30]", "'12:30' cannot be read as int (in YAML it is the number 750); put text in quotes"),
        ("a: 1:30.5", "'1:30.5' cannot be read as float (in YAML it is the number 90.5); put text in quotes"),
        (f"a: {'9' * 5000}", "9... cannot be read as int (Exceeds the limit"),
        (f"name: 0x{'f' * 5000}", "f... cannot be read as int (too many digits); put text in quotes"),
    ],
)
def test_what_is_no_spec_at_all(tmp_path: Path, text: str, error: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UserError) as caught:
        dataset_spec("reviews", tmp_path)
    assert str(path) in str(caught.value) and error in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "changes", "said"),
    [
        (Recipe, {"epoch": 6}, "epoch: unknown key; did you mean epochs?"),
        (Recipe, {"masking": {"shceme": "span"}}, "masking.shceme: unknown key; did you mean scheme?"),
        (Recipe, {"qwertz": 6}, "qwertz: unknown key; remove it or correct its name"),
        (Recipe, {"lora": True}, "lora: expected a number, got true"),
        (Recipe, {"dropout": False}, "dropout: expected a number, got false"),
        (Mixture, {"size": True}, "size: expected a number, got true"),
        (Recipe, {"objectives": {"structure": True}}, 'objectives: expected a number, got {"structure": true}'),
        (Recipe, {"batches": "mixt"}, "batches: expected 'mixed', 'by_task' or 'cycle', got 'mixt'"),
        (
            Mixture,
            {"sources": [{"corpus": "a", "wieght": 2}]},
            "sources.0.wieght: unknown key; did you mean weight?",
        ),
        (
            Mixture,
            {"sources": ["workshop"]},
            "sources.0: expected keys with values (corpus, mixture, weight, split, where, cap, ...), "
            "got 'workshop'",
        ),
        (
            Mixture,
            {"name": "A b"},
            "name: expected a name of lower-case letters, digits, `_`, `-` and `.`, got 'A b'",
        ),
    ],
)
def test_a_wrong_key_is_explained_in_plain_words(kind: type[Any], changes: dict[str, Any], said: str) -> None:
    good = {"name": "a", **({"mixture": "a", "steps": 1} if kind is Recipe else {"sources": [{"corpus": "a"}]})}
    with pytest.raises(UserError) as caught:
        validate(kind, {**good, **changes}, "a.yaml")
    assert str(caught.value) == f"a.yaml: {said}"


def test_a_misspelt_key_is_one_error_and_a_missing_one_is_named(tmp_path: Path) -> None:
    spec = {**GOOD, "formt": GOOD["format"]}
    path = write(tmp_path, {key: value for key, value in spec.items() if key not in ("format", "licence")})
    with pytest.raises(UserError) as caught:
        dataset_spec("reviews", tmp_path)
    assert str(caught.value).splitlines() == [
        f"{path}: licence: missing; add this key",
        f"{path}: formt: unknown key; did you mean format?",
    ]


def test_options_and_languages_are_explained_too(tmp_path: Path) -> None:
    options = {**GOOD["options"], "seperator": ","}
    assert errors(tmp_path, options=options) == ["options.seperator: unknown key; did you mean separator?"]
    said = "language: expected a language tag (BCP 47) such as en, de or zh-Hant, got 'english'"
    assert errors(tmp_path, language="english") == [said]


def test_a_spec_that_is_not_utf8_names_its_byte(tmp_path: Path) -> None:
    write(tmp_path, "").write_bytes(b"name: caf\xe9")
    with pytest.raises(UserError, match="byte 9 is not UTF-8"):
        dataset_spec("reviews", tmp_path)


def test_a_folder_is_no_spec(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: Is a directory; give a YAML file"):
        read_yaml(tmp_path)


def test_each_value_is_a_category_of_its_own() -> None:
    values = [0.1, 1, 1_000_000, 1_000_001, 1234567]
    names = [category.name for category in Categories(value=values).all()]
    assert [float(name) for name in names] == values and names[:2] == ["0.1", "1"]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"epochs": float("inf"), "steps": None}, "epochs: Input should be a finite number"),
        ({"learning_rate": float("inf")}, "learning_rate: Input should be a finite number"),
        ({"initial_bias": float("nan")}, "initial_bias: Input should be a finite number"),
        ({"clip": float("inf")}, "clip: Input should be a finite number"),
        ({"objectives": {"spexbert": 1}, "prompts": {"drop": 0.5}}, "prompts vary for structure tables only"),
    ],
)
def test_a_recipe_without_effect_or_end_is_refused(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(UserError, match=f"^a.yaml: {reason}"):
        validate(Recipe, {"name": "a", "mixture": "a", "steps": 1, **changed}, "a.yaml")


def test_an_unknown_name_brings_the_nearest_ones(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    with pytest.raises(UserError, match="no such file; did you mean reviews"):
        dataset_spec("review", tmp_path)
    with pytest.raises(UserError, match="no such file; there are reviews"):
        dataset_spec("../secrets", tmp_path)
    with pytest.raises(UserError, match="no such folder of specs"):
        specs_folder(tmp_path / "none")


def test_a_name_that_is_like_none_brings_the_first_ones_and_else_the_three_nearest(tmp_path: Path) -> None:
    (tmp_path / "datasets").mkdir()
    for names, asked, hint in (
        ([], "toy", "there are none"),
        (["toys", "films"], "0", "there are films, toys"),
        (["toyb", "toyd", "toyc"], "toya", r"did you mean toy\w or toy\w or toy\w\?"),
        ([f"c{i:02}" for i in range(23)], "0", "there are c00, .*, c19 and 8 more"),
    ):
        for name in names:
            write(tmp_path, {"name": name}, name=name)
        with pytest.raises(UserError, match=rf"{asked}\.yaml: no such file; {hint}$"):
            dataset_spec(asked, tmp_path)


def test_a_spec_that_is_not_utf8_keeps_no_other_back(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    write(tmp_path, "", name="other").write_bytes(b"# caf\xe9\nname: other\n")
    assert dataset_names(tmp_path) == ["other", "reviews"]


def test_options_of_a_file_go_before_those_of_the_spec(tmp_path: Path) -> None:
    files = [{"split": "train", "path": "a"}, {"split": "test", "path": "b", "options": {"separator": ","}}]
    write(tmp_path, {**GOOD, "files": files})
    spec = dataset_spec("reviews", tmp_path)
    found = [file_options(spec, entry) for entry in spec.files]
    assert [(options.separator, options.columns) for options in found] == [
        ("\t", ["label", "text"]),
        (",", ["label", "text"]),
    ]


def test_mixtures_and_recipes_are_found_by_name_and_recipes_by_path(tmp_path: Path) -> None:
    write(tmp_path, {"name": "small", "sources": [{"corpus": "reviews"}]}, "mixtures", "small")
    path = write(tmp_path, {"name": "run", "mixture": "small", "steps": 3}, "recipes", "run")
    assert mixture("small", tmp_path).sources[0].corpus == "reviews"
    assert recipe("run", tmp_path) == recipe(str(path), tmp_path / "elsewhere")
    short = path.rename(tmp_path / "run.yml")
    assert recipe(str(short), tmp_path / "elsewhere").mixture == "small"
    write(tmp_path, {"name": "run", "mixture": "small", "steps": 0, "epoch": 1}, "recipes", "run")
    with pytest.raises(UserError) as caught:
        recipe("run", tmp_path)
    assert len(str(caught.value).splitlines()) == 2


def test_an_encoder_in_a_folder_is_found_from_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers of a training have a working folder of their own."""
    write(tmp_path, {"name": "run", "mixture": "small", "steps": 3, "encoder": "small"}, "recipes", "run")
    monkeypatch.chdir(tmp_path)
    assert recipe("run", tmp_path).encoder == "small"  # of the hub
    (tmp_path / "small").mkdir()
    assert recipe("run", tmp_path).encoder == str(tmp_path / "small")


@pytest.mark.parametrize(
    ("load", "name"),
    [
        (load, path.stem)
        for load, folder in ((mixture, "mixtures"), (recipe, "recipes"))
        for path in sorted((OURS / folder).glob("*.yaml"))
    ],
)
def test_each_mixture_and_recipe_of_ours_loads(load: Callable[[str, Path], Mixture | Recipe], name: str) -> None:
    assert load(name, OURS).name == name


@pytest.mark.parametrize(
    ("objectives", "masking", "named"),
    [
        (["structure"], {"texts": "all"}, "texts"),
        (["spexbert"], {"scheme": "word", "share": 0.3}, "scheme, share"),
        (["unilm"], {"texts": "all", "replacements": "vocabulary"}, "replacements"),
        (["seq2seq"], {"boundary": False}, "boundary"),
        (["unilm"], {"texts": "all"}, None),
        (["structure", "spanbert"], {"scheme": "word", "texts": "all", "boundary": False}, None),
    ],
)
def test_masking_that_no_objective_reads_is_refused_by_name(
    tmp_path: Path, objectives: list[str], masking: dict[str, Any], named: str | None
) -> None:
    shares = dict.fromkeys(objectives, 1 / len(objectives))
    content = {"name": "run", "mixture": "small", "steps": 3, "objectives": shares, "masking": masking}
    write(tmp_path, content, "recipes", "run")
    if named is None:
        recipe("run", tmp_path)
        return
    with pytest.raises(UserError, match=rf"masking: {named} has no effect, because spanbert is not among"):
        recipe("run", tmp_path)


def test_a_recipe_is_read_back_from_what_a_run_keeps_of_it() -> None:
    """All settings are written there, those of objectives that it lacks among them."""
    chosen = Recipe(name="run", mixture="small", steps=3)
    assert Recipe.model_validate_json(chosen.model_dump_json()) == chosen


@pytest.mark.parametrize("name", dataset_names(OURS))
def test_every_spec_of_ours_is_right_and_agrees_with_the_schema_for_editors(name: str, schema: Validator) -> None:
    spec = dataset_spec(name, OURS)
    content = yaml.safe_load((OURS / "datasets" / f"{name}.yaml").read_text(encoding="utf-8"))
    schema.validate(content)
    for entry in spec.files:
        file_options(spec, entry)
    assert len(spec.categories.all()) == len(
        {(c.name, c.kind, c.head, c.tail, c.event) for c in spec.categories.all()}
    )


def test_the_schema_for_editors_accepts_labels_without_names(tmp_path: Path, schema: Validator) -> None:
    content = {**GOOD, "categories": {"label": ["POS", "NEG"], "entity": ["PER"], "relation": ["worksFor"]}}
    schema.validate(content)
    write(tmp_path, content)
    named = [category.name for category in dataset_spec("reviews", tmp_path).categories.all()]
    assert named == ["POS", "NEG", "PER", "worksFor"]


@pytest.mark.parametrize(
    "changes",
    [
        {"licens": "MIT"},
        {"format": "pdf"},
        {"options": {"columns": ["a"], "delimiter": ","}},
        {"task": "sentiment"},
    ],
)
def test_the_schema_for_editors_refuses_what_the_check_refuses(
    tmp_path: Path, changes: Any, schema: Validator
) -> None:
    schema.validate(GOOD)
    assert errors(tmp_path, **changes)
    with pytest.raises(jsonschema.ValidationError):
        schema.validate({**GOOD, **changes})


def test_the_schemas_that_editors_read_are_those_of_the_code(tmp_path: Path) -> None:
    write_json_schemas(tmp_path)
    for kind in ("dataset", "mixture", "recipe"):
        committed = (OURS / "schemas" / f"{kind}.json").read_text(encoding="utf-8")
        assert (tmp_path / f"{kind}.json").read_text(encoding="utf-8") == committed, "run `make schemas`"
        for spec in sorted((OURS / f"{kind}s").glob("*.yaml")):
            assert spec.read_text(encoding="utf-8").startswith(
                f"# yaml-language-server: $schema=../schemas/{kind}.json\n"
            ), spec


def test_dots_and_tildes_within_a_path_are_letters_of_names(tmp_path: Path) -> None:
    files = [{"split": "train", "path": path} for path in ("a..b/c~d", "..a", "b..")]
    write(tmp_path, {**GOOD, "files": files})
    assert [entry.path for entry in dataset_spec("reviews", tmp_path).files] == ["a..b/c~d", "..a", "b.."]


def test_a_file_may_be_of_two_splits(tmp_path: Path) -> None:
    entries = [{"split": split, "path": path} for split in ("train", "test") for path in ("a", "b")]
    write(tmp_path, {**GOOD, "files": entries})
    assert len(dataset_spec("reviews", tmp_path).files) == 4
    [error] = errors(tmp_path, files=[*entries, dict(entries[3]), dict(entries[0])])
    assert error.startswith("files: named twice in one split: a of train, b of test")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        (
            {"categories": {"label": {"a": "b"}, "relation": [{"label": "r", "name": "r", "tail": "x"}]}},
            "categories: relation 'r' joins 'x', which is not a label of `entity`",
        ),
        (
            {"categories": {"label": {"a": "b"}, "value": [1, 2, 2]}},
            "categories.value: expected numbers that ascend",
        ),
        (
            {"categories": {"label": {"a": "b"}, "value": [1, 3, 2]}},
            "categories.value: expected numbers that ascend",
        ),
        (
            {"categories": {"label": {"a": "b"}, "value": [False, 2]}},
            "categories.value: expected a number",
        ),
        (
            {"categories": {"label": {"a": "b"}, "value": [0, float("inf")]}},
            "categories.value.1: Input should be a finite number",
        ),
        (
            {"map": {"text": "t", "tokens": "w", "label": "l"}},
            "map: expected one of chunks, text, tokens, got text and",
        ),
        ({"map": {"text": "t", "label": "l", "when": {"l": {}}}}, "map.when.l: expected a value, several"),
        (
            {"map": {"text": "t", "label": "l", "candidate_keys": "k"}},
            "map: candidate_keys: no effect here; remove it",
        ),
    ],
)
def test_a_wrong_part_of_a_spec_is_refused(tmp_path: Path, changes: Any, error: str) -> None:
    [found] = errors(tmp_path, **changes)
    assert found.startswith(error)


def test_numbers_of_64_bits_are_read_and_no_longer_ones(tmp_path: Path) -> None:
    path = tmp_path / "numbers.yaml"
    path.write_text(f"[{2**64 - 1}, {1 - 2**64}]", encoding="utf-8")
    assert read_yaml(path) == [2**64 - 1, 1 - 2**64]
    path.write_text(f"[1, {2**64}]", encoding="utf-8")
    with pytest.raises(UserError, match=r"line 1, column 5"):
        read_yaml(path)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("x" * 78, repr("x" * 78)),
        ("x" * 79, "'" + "x" * 76 + "..."),
        ({"é": [None, True, "\ud800"]}, '{"é": [null, true, "\\ud800"]}'),
        ({(1, 2): 3}, "{(1, 2): 3}"),
    ],
)
def test_a_value_of_an_error_is_at_most_80_characters(value: Any, shown: str) -> None:
    assert shortened(value) == shown


@pytest.mark.parametrize(
    ("settings", "varies"),
    [({}, False), ({"shuffle": True}, True), ({"drop": 0.1}, True), ({"rename": 0.1}, True)],
)
def test_prompts_vary_by_any_of_their_settings(settings: dict[str, Any], varies: bool) -> None:
    assert Prompting(**settings).varies == varies


@pytest.mark.parametrize(
    ("objectives", "masks", "points", "generates"),
    [
        (["structure"], False, False, False),
        (["spexbert"], False, True, False),
        (["spanbert"], True, False, False),
        (["unilm"], True, False, True),
        (["seq2seq"], True, False, True),
        (["structure", "spanbert"], True, False, False),
        (["spexbert", "seq2seq"], True, True, True),
    ],
)
def test_objectives_say_what_a_model_needs(
    objectives: list[str], masks: bool, points: bool, generates: bool
) -> None:
    shares: Any = dict.fromkeys(objectives, 1 / len(objectives))
    chosen = Recipe(name="run", mixture="small", steps=3, objectives=shares)
    assert (chosen.masks, chosen.points, chosen.generates) == (masks, points, generates)


def test_a_key_that_is_missing_has_no_value_to_tell(tmp_path: Path) -> None:
    path = write(tmp_path, {key: value for key, value in GOOD.items() if key not in ("instruction", "files")})
    with pytest.raises(UserError) as caught:
        dataset_spec("reviews", tmp_path)
    lines = str(caught.value).splitlines()
    assert [line.removeprefix(f"{path}: ").partition(":")[0] for line in lines] == ["instruction", "files"]
    assert not any("got" in line for line in lines)
