"""Find the files of specs by name, and read them with what they inherit: `extends`, `also` and nested mixtures."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ubert.schema.errors import UserError
from ubert.schema.names import NAME
from ubert.schema.wrong_keys import shortened
from ubert.schema.yaml_file import read_yaml

# The keys that an entry of `also` may have. The other keys describe the rows, which it shares with its spec.
OF_TASK = ("description", "task", "language", "instruction", "error_budget", "twins", "map", "categories")
MOST_LISTED = 20  # names in an error message
_ALSO = re.compile(r"^also\s*:", re.MULTILINE)


def names(folder: Path) -> list[str]:
    """Return the names of all specs in a folder, with those under `also`.

    Raises:
        UserError: the entries under `also` of a file are wrong; the message has a line for each such file.
    """
    files, problems = _files(folder)
    if problems:
        raise UserError("\n".join(problems))
    return sorted(files)


def names_and_problems(folder: Path) -> tuple[list[str], list[str]]:
    """Return the names of all specs in a folder, and the errors of the files whose `also` is wrong."""
    files, problems = _files(folder)
    return sorted(files), problems


def same_rows(given: Sequence[str], folder: Path) -> list[str]:
    """Return these names of specs, each followed by those under its `also`."""
    own = _own_files(folder)
    beside = {name: _others(own[name]) for name in given if name in own}
    return [*dict.fromkeys(each for name in given for each in (name, *beside.get(name, ())))]


def find(name: str, folder: Path) -> Path:
    """Return the file that has a spec.

    Raises:
        UserError: there is no such spec.
    """
    with suppress(OSError):  # a name can be longer than file systems allow
        if re.fullmatch(NAME, name) and (path := folder / f"{name}.yaml").is_file():
            return path
    files, problems = _files(folder)
    if name not in files:
        if problems:  # the name may be in one of these files
            raise UserError("\n".join(problems))
        close = difflib.get_close_matches(name, files, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else f"there are {_listed(sorted(files)) or 'none'}"
        raise UserError(f"{folder / f'{name}.yaml'}: no such file; {hint}")
    return files[name]


def _listed(names: Sequence[str]) -> str:
    """Join names for an error message, with the number of those left out."""
    more = len(names) - MOST_LISTED
    return ", ".join(names[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def _own_files(folder: Path) -> dict[str, Path]:
    return {path.stem: path for path in folder.glob("*.yaml")}


def _files(folder: Path) -> tuple[dict[str, Path], list[str]]:
    """Return the file of each spec by name, and the errors of the files whose `also` is wrong."""
    files, problems = _own_files(folder), []
    for path in [*files.values()]:
        try:
            others = _others(path)
        except UserError as error:
            problems.append(str(error))
            continue
        for name in others:
            if name in files:
                problems.append(f"{path}: also.{name}: {files[name]} has a spec of this name; choose another")
            else:
                files[name] = path
    return files, problems


def _others(path: Path) -> list[str]:
    """Return the names under `also` of a file. Files without the key are not parsed, as there are many."""
    if not _ALSO.search(path.read_text(encoding="utf-8", errors="replace")):
        return []
    content = read_yaml(path)
    return [*_also(content, path)] if isinstance(content, dict) else []


def _also(content: dict[str, Any], path: Path) -> dict[str, dict[str, Any]]:
    """Return the entries of `also`.

    Raises:
        UserError: an entry has no name or that of the spec, no task, or keys that are not of its task.
    """
    given = content.get("also", {})
    if not isinstance(given, dict) or not given:
        raise UserError(
            f"{path}: also: expected names of further corpora, each with what differs, got {shortened(given)}"
        )
    for name, own in given.items():
        if not isinstance(name, str) or not re.fullmatch(NAME, name):
            raise UserError(
                f"{path}: also.{name}: expected a name of lower-case letters, digits, `_`, `-` and `.`"
            )
        if name == path.stem:
            raise UserError(f"{path}: also.{name}: the spec itself has this name; choose another")
        if not isinstance(own, dict) or "task" not in own:
            raise UserError(f"{path}: also.{name}: expected `task` and what else differs, got {shortened(own)}")
        if strange := [str(key) for key in own if key not in OF_TASK]:
            raise UserError(
                f"{path}: also.{name}.{strange[0]}: unknown key; expected {', '.join(OF_TASK)}. To read the files "
                f"otherwise, write a spec that `extends: {content.get('name')}`"
            )
    return given


def read_dataset(name: str, path: Path, on_the_way: tuple[str, ...] = ()) -> Any:
    """Read a dataset's spec, merged with the spec that it `extends` or whose `also` has it.

    Raises:
        UserError: there is no such spec, or it extends itself.
    """
    content = read_yaml(path)
    if not isinstance(content, dict):
        return content
    others = _also(content, path) if "also" in content else {}
    if name in others:
        whole = read_dataset(path.stem, path, (*on_the_way, name))
        return _laid_over({"dataset": path.stem, **whole}, {"name": name, **others[name]})
    content.pop("also", None)
    if "extends" not in content:
        return content
    base = content.pop("extends")
    if not isinstance(base, str):
        raise UserError(f"{path}: extends: expected the name of a dataset, got {shortened(base)}")
    if name in on_the_way:
        raise UserError(f"{path}: extends: the spec extends itself, through {base}; remove one of the two")
    found = read_dataset(base, find(base, path.parent), (*on_the_way, name))
    if not isinstance(found, dict):
        raise UserError(f"{path}: extends: {base}.yaml is not a spec; expected a mapping of keys")
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


def read_mixture(path: Path, on_the_way: tuple[Path, ...] = ()) -> Any:
    """Read a mixture, and replace the names of nested mixtures by their content.

    Raises:
        UserError: there is no such mixture, or it contains itself.
    """
    return _with_nested(read_yaml(path), path, (*on_the_way, path))


def _with_nested(content: Any, path: Path, on_the_way: tuple[Path, ...]) -> Any:
    """Replace the names of nested mixtures, also those in a definition within the file."""
    sources = content.get("sources") if isinstance(content, dict) else None
    for source in sources if isinstance(sources, list) else []:
        inside = source.get("mixture") if isinstance(source, dict) else None
        if isinstance(inside, str):
            file = find(inside, path.parent)
            if file in on_the_way:
                raise UserError(f"{path}: sources: {inside} contains this mixture; remove one of the two")
            source["mixture"] = read_mixture(file, on_the_way)
        else:
            _with_nested(inside, path, on_the_way)
    return content
