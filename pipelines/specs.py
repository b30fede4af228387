"""Load the specs of datasets, mixtures and recipes by name, and check them completely before anything runs."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from pipelines.sources import formats, reader
from ubert.schema.errors import UserError
from ubert.schema.specs.dataset import DatasetSpec, Files
from ubert.schema.specs.mixture import Mixture
from ubert.schema.specs.recipe import Recipe
from ubert.schema.yaml_file import Strict, explain, read_yaml, shortened

EXTENDS = (
    "The name of another spec; this one states what differs from it. `map`, `options` and `categories` are joined "
    "key by key, and a key with nothing takes the other's away. The raw files are those of the other's folder."
)
Named = TypeVar("Named", DatasetSpec, Mixture, Recipe)


def specs_folder(given: Path | None) -> Path:
    """Return the folder of specs: the given one, else the project's own.

    Raises:
        UserError: there is no such folder.
    """
    folder = given or Path(__file__).resolve().parents[1] / "corpus_specs"
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder of specs; expected one with datasets/, mixtures/ and recipes/")
    return folder


def dataset_names(folder: Path) -> list[str]:
    """Return the names of all datasets that have a spec."""
    return _names(folder / "datasets")


def dataset_spec(name: str, folder: Path) -> DatasetSpec:
    """Load the spec of a dataset, and check its `options` by its format.

    Raises:
        UserError: there is no such spec, or it has errors; the message lists all of them.
    """
    return _load(DatasetSpec, name, _find(name, folder / "datasets"))


def file_options(spec: DatasetSpec, files: Files) -> Strict:
    """Return the format's options for one entry of `files`. The entry's own options override the spec's."""
    return reader(spec.format).Options.model_validate({**spec.options, **files.options})


def mixture(name: str, folder: Path) -> Mixture:
    """Load a mixture by name, with its nested mixtures. Raises `UserError` as `dataset_spec` does."""
    return _load(Mixture, name, _find(name, folder / "mixtures"))


def recipe(name_or_path: str, folder: Path) -> Recipe:
    """Load a recipe by name, or by the path of a YAML file. Raises `UserError` as `dataset_spec` does."""
    if name_or_path.endswith((".yaml", ".yml")):
        path = Path(name_or_path)
        return _load(Recipe, path.stem, path)
    return _load(Recipe, name_or_path, _find(name_or_path, folder / "recipes"))


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
        keys.update({key: {"anyOf": [schema, {"type": "null"}]} for key, schema in keys.items()})
    whole = dataset["properties"]["categories"]
    dataset["properties"]["categories"] = {"anyOf": [whole, {"type": "null"}]}
    needed = {"required": dataset.pop("required")}
    of_format = [_of_format(name, dataset["$defs"]) for name in formats()]
    extending = {"if": {"required": ["extends"]}, "then": {"required": ["name"]}, "else": needed}
    dataset["allOf"] = [extending, *of_format]
    mixture = Mixture.model_json_schema()
    nested = mixture["$defs"]["MixtureSource"]["properties"]["mixture"]
    nested["anyOf"].insert(0, {"type": "string"})  # the mixture's name
    return {"dataset": dataset, "mixture": mixture, "recipe": Recipe.model_json_schema()}


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


def _names(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.yaml"))


def _find(name: str, folder: Path) -> Path:
    names = _names(folder)
    if name not in names:
        close = difflib.get_close_matches(name, names, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(names) or 'none'}"
        raise UserError(f"{folder / name}.yaml: no such file; {hint}")
    return folder / f"{name}.yaml"


def _load(model: type[Named], name: str, path: Path) -> Named:
    read = _extended if model is DatasetSpec else _mixed if model is Mixture else _plain
    content = read(path, ())
    problems: list[str] = []
    spec: Named | None = None
    try:
        spec = model.model_validate(content)
    except ValidationError as error:
        problems += explain(error, path)
    if isinstance(content, dict):
        if isinstance(content.get("name"), str) and content["name"] != name:
            problems.append(f"{path}: name: expected {name!r}, as the file is named, got {content['name']!r}")
        if model is DatasetSpec:
            problems += _wrong_options(content, path)
    if spec is None or problems:
        raise UserError("\n".join(problems))
    return spec


def _plain(path: Path, _: tuple[Path, ...]) -> Any:
    return read_yaml(path)


def _mixed(path: Path, on_the_way: tuple[Path, ...]) -> Any:
    """Read a mixture, and replace the names of nested mixtures by their content.

    Raises:
        UserError: there is no such mixture, or it contains itself.
    """
    content = read_yaml(path)
    sources = content.get("sources") if isinstance(content, dict) else None
    for source in sources if isinstance(sources, list) else []:
        if isinstance(source, dict) and isinstance(name := source.get("mixture"), str):
            inside = _find(name, path.parent)
            if inside in (*on_the_way, path):
                raise UserError(f"{path}: sources: {name} is made of this mixture; a mixture can't hold itself")
            source["mixture"] = _mixed(inside, (*on_the_way, path))
    return content


def _extended(path: Path, on_the_way: tuple[Path, ...]) -> Any:
    """Read a dataset's spec, merged with the spec that it `extends`.

    Raises:
        UserError: there is no such spec, or it extends itself.
    """
    content = read_yaml(path)
    if not isinstance(content, dict) or "extends" not in content:
        return content
    base = content.pop("extends")
    if not isinstance(base, str):
        raise UserError(f"{path}: extends: expected the name of a dataset, got {shortened(base)}")
    if path in on_the_way:
        raise UserError(f"{path}: extends itself, by way of {base}.yaml")
    found = _extended(_find(base, path.parent), (*on_the_way, path))
    if not isinstance(found, dict):
        raise UserError(f"{path}: extends: {base}.yaml is not a spec")
    if "licence" in content:  # the inherited class belongs to the inherited licence
        found.pop("licence_class", None)
    return _laid_over({"dataset": base, **found}, content)


def _laid_over(base: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    """Merge `content` over `base`. Mappings such as `map`, `options` and `categories` are merged key by key. A
    null value removes a key."""
    merged = {**base, **content}
    for key, given in content.items():
        if isinstance(given, dict) and isinstance(base.get(key), dict):
            merged[key] = {name: item for name, item in {**base[key], **given}.items() if item is not None}
    return {key: item for key, item in merged.items() if item is not None}


def _wrong_options(content: dict[str, Any], path: Path) -> list[str]:
    """List the format's errors in the options. Errors in the types of enclosing keys are reported by the spec's
    validation."""
    name, shared, entries = content.get("format"), content.get("options", {}), content.get("files")
    if not isinstance(name, str) or not isinstance(shared, dict):
        return []
    if name not in formats():
        return [f"{path}: format: expected one of {', '.join(formats())}, got {name!r}"]
    problems = []
    for i, entry in enumerate(entries if isinstance(entries, list) and entries else [{}]):
        own = entry.get("options", {}) if isinstance(entry, dict) else {}
        if not isinstance(own, dict):
            continue
        try:
            reader(name).Options.model_validate({**shared, **own})
        except ValidationError as error:
            problems += explain(error, path, ("files", str(i), "options") if own else ("options",))
    return list(dict.fromkeys(problems))


if __name__ == "__main__":
    write_json_schemas(specs_folder(None) / "schemas")
