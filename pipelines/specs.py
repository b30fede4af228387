"""Load the specs of datasets, mixtures and recipes by name, and check them completely before anything runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from pipelines.sources import formats, reader
from pipelines.spec_files import OF_TASK, find, names, names_and_problems, read_dataset, read_mixture, same_rows
from ubert.schema.errors import UserError
from ubert.schema.names import NAME
from ubert.schema.specs.dataset import DatasetSpec, Files
from ubert.schema.specs.mixture import Mixture
from ubert.schema.specs.recipe import Recipe
from ubert.schema.wrong_keys import explain
from ubert.schema.yaml_file import Strict, read_yaml

EXTENDS = (
    "The name of another spec. This spec states only what differs from it. `map`, `options` and `categories` are "
    "merged key by key, and a null value removes a key. The raw files are those of the other spec's folder."
)
ALSO = (
    "Further corpora of the same rows, for example of a number that each row has besides its label. Each name has "
    "its `task` and what else differs, as in a spec that `extends` this one. `ubert ingest` makes all of them."
)
Named = TypeVar("Named", DatasetSpec, Mixture, Recipe)
SPECS = Path(__file__).resolve().parents[1] / "corpus_specs"  # the project's own specs


def specs_folder(given: Path | None) -> Path:
    """Return the folder of specs: the given one, else the project's own.

    Raises:
        UserError: there is no such folder.
    """
    folder = given or SPECS
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder of specs; expected one with datasets/, mixtures/ and recipes/")
    return folder


def dataset_names(folder: Path) -> list[str]:
    """Return the names of all datasets that have a spec, or an entry under `also` of one."""
    return names(folder / "datasets")


def with_same_rows(given: Sequence[str], folder: Path) -> list[str]:
    """Return these names of datasets, each followed by those under its `also`."""
    return same_rows(given, folder / "datasets")


def dataset_spec(name: str, folder: Path) -> DatasetSpec:
    """Load the spec of a dataset, and check its `options` by its format.

    Raises:
        UserError: there is no such spec, or it has errors; the message lists all of them.
    """
    return _load(DatasetSpec, name, find(name, folder / "datasets"))


def dataset_specs(names: Sequence[str], folder: Path) -> list[DatasetSpec]:
    """Load the specs of several datasets.

    Raises:
        UserError: a spec doesn't exist or has errors; the message lists the errors of all of them.
    """
    found, problems = _loaded(names, folder)
    if problems:
        raise UserError("\n".join(problems))
    return found


def readable_specs(folder: Path) -> tuple[list[DatasetSpec], list[str]]:
    """Load the specs of all datasets that have no errors. Also return the errors of the others."""
    names, in_also = names_and_problems(folder / "datasets")
    found, problems = _loaded(names, folder)
    return found, list(dict.fromkeys([*in_also, *problems]))


def _loaded(names: Sequence[str], folder: Path) -> tuple[list[DatasetSpec], list[str]]:
    found, problems = [], list[str]()
    for name in names:
        try:
            found.append(dataset_spec(name, folder))
        except UserError as error:
            problems += str(error).split("\n")
    return found, list(dict.fromkeys(problems))  # specs of one file may share an error


def file_options(spec: DatasetSpec, files: Files) -> Strict:
    """Return the format's options for one entry of `files`. The entry's own options override the spec's."""
    return reader(spec.format).Options.model_validate({**spec.options, **files.options})


def mixture(name: str, folder: Path) -> Mixture:
    """Load a mixture by name, with its nested mixtures. Raises `UserError` as `dataset_spec` does."""
    return _load(Mixture, name, find(name, folder / "mixtures"))


def recipe(name_or_path: str, folder: Path) -> Recipe:
    """Load a recipe by name, or by the path of a YAML file. Raises `UserError` as `dataset_spec` does."""
    if name_or_path.endswith((".yaml", ".yml")):
        path = Path(name_or_path)
        found = _load(Recipe, path.stem, path)
    else:
        found = _load(Recipe, name_or_path, find(name_or_path, folder / "recipes"))
    if (encoder := Path(found.encoder)).is_dir():  # workers of Ray Train have another working folder
        return found.model_copy(update={"encoder": str(encoder.absolute())})
    return found


def paraphrases(folder: Path) -> dict[str, list[str]]:
    """Load the paraphrases of category names and instructions from `paraphrases.yaml`, if it exists.

    Raises:
        UserError: the file is not a mapping of names to lists of paraphrases.
    """
    path = folder / "paraphrases.yaml"
    if not path.exists():
        return {}
    try:
        return TypeAdapter(dict[str, list[str]]).validate_python(read_yaml(path), strict=True)
    except ValidationError as error:
        raise UserError("\n".join(explain(error, path))) from None


def json_schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON Schemas of the three kinds of spec, for editors. The schema of a dataset's `options` depends
    on its `format`."""
    dataset = DatasetSpec.model_json_schema()
    dataset["properties"]["format"]["enum"] = formats()
    # A spec that extends another contains only the differences; a null value removes a key.
    dataset["properties"]["extends"] = {"type": "string", "description": EXTENDS}
    for part in ("Categories", "Mapping"):
        keys = dataset["$defs"][part]["properties"]
        keys.update({key: _or_null(schema) for key, schema in keys.items()})
    dataset["properties"]["categories"] = _or_null(dataset["properties"]["categories"])
    of_task = {key: part for key, part in dataset["properties"].items() if key in OF_TASK}
    entry = {"type": "object", "properties": of_task, "required": ["task"], "additionalProperties": False}
    named = {"propertyNames": {"pattern": NAME}, "minProperties": 1}
    also = {"type": "object", "description": ALSO, "additionalProperties": entry, **named}
    dataset["properties"]["also"] = also
    needed = {"required": dataset.pop("required")}
    of_format = [_of_format(name, dataset["$defs"]) for name in formats()]
    extending = {"if": {"required": ["extends"]}, "then": {"required": ["name"]}, "else": needed}
    dataset["allOf"] = [extending, *of_format]
    mixture = Mixture.model_json_schema()
    nested = mixture["$defs"]["MixtureSource"]["properties"]["mixture"]
    nested["anyOf"].insert(0, {"type": "string"})  # the mixture's name
    return {"dataset": dataset, "mixture": mixture, "recipe": Recipe.model_json_schema()}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that allows null, too. Its description and default stay at the top, where editors look."""
    outer = {key: part for key, part in schema.items() if key in ("description", "default")}
    inner = {key: part for key, part in schema.items() if key not in outer}
    return {"anyOf": [inner, {"type": "null"}], **outer}


def _of_format(name: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the condition on a spec's options for one format. Models of options are added to `definitions`."""
    options = reader(name).Options.model_json_schema(ref_template=f"#/$defs/{name}.{{model}}")
    definitions.update({f"{name}.{model}": schema for model, schema in options.pop("$defs", {}).items()})
    # A file's own options need not be complete, because they are merged with the spec's.
    own = {key: part for key, part in options.items() if key != "required"}
    of_files = {"items": {"properties": {"options": own}}}
    return {
        "if": {"properties": {"format": {"const": name}, "extends": False}, "required": ["format"]},
        "then": {"properties": {"options": options, "files": of_files}},
    }


def write_json_schemas(folder: Path) -> None:
    """Write the JSON Schemas as `<kind>.json`. The first line of every spec names its schema to the editor."""
    for kind, schema in json_schemas().items():
        text = json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
        (folder / f"{kind}.json").write_text(text, encoding="utf-8")


def _load(model: type[Named], name: str, path: Path) -> Named:
    content = _content(model, name, path)
    within = () if path.stem == name else ("also", name)
    problems: list[str] = []
    spec: Named | None = None
    try:
        spec = model.model_validate(content)
    except ValidationError as error:
        problems += explain(error, path, within, model)
    if isinstance(content, dict):
        if isinstance(content.get("name"), str) and content["name"] != name:
            problems.append(f"{path}: name: expected {name!r}, as the file is named, got {content['name']!r}")
        if model is DatasetSpec:
            problems += _wrong_options(content, path)
    if spec is None or problems:
        raise UserError("\n".join(problems))
    return spec


def _content(model: type[Named], name: str, path: Path) -> Any:
    if model is DatasetSpec:
        return read_dataset(name, path)
    return read_mixture(path) if model is Mixture else read_yaml(path)


def _wrong_options(content: dict[str, Any], path: Path) -> list[str]:
    """List the format's errors in the options. Errors in the types of enclosing keys are reported by the spec's
    validation."""
    name, shared, entries = content.get("format"), content.get("options", {}), content.get("files")
    if not isinstance(name, str) or not isinstance(shared, dict):
        return []
    if name not in formats():
        return [f"{path}: format: expected one of {', '.join(formats())}, got {name!r}"]
    model, problems = reader(name).Options, []
    for i, entry in enumerate(entries if isinstance(entries, list) and entries else [{}]):
        own = entry.get("options", {}) if isinstance(entry, dict) else {}
        if not isinstance(own, dict):
            continue
        try:
            model.model_validate({**shared, **own})
        except ValidationError as error:
            problems += explain(error, path, ("files", str(i), "options") if own else ("options",), model)
    return list(dict.fromkeys(problems))


if __name__ == "__main__":
    write_json_schemas(specs_folder(None) / "schemas")
