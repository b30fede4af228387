"""Architecture: the direction of imports, forbidden libraries, and limits on files. See docs/architecture.md."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from waiting import HANGS

REPO = Path(__file__).parents[1]
ARROW = (  # then pipelines
    "schema", "encoder", "structure", "spanbert", "unilm", "spexbert", "model", "objectives", "inference",
    "evaluation", "loader", "training",
)  # fmt: skip
FILES = sorted(path for package in ("ubert", "pipelines") for path in (REPO / package).rglob("*.py"))
NETWORK = {
    "aiohttp", "boto3", "ftplib", "fsspec", "http", "httpx", "huggingface_hub", "requests", "smtplib", "socket",
    "ssl", "urllib", "urllib3", "websockets", "xmlrpc",
}  # fmt: skip
PICKLES = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


def module_name(path: Path) -> str:
    parts = path.relative_to(REPO).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), path.name)


def imports(node: ast.AST) -> Iterator[str]:
    """Full names of all modules imported anywhere below `node`; `from a import b` gives a.b."""
    for item in ast.walk(node):
        if isinstance(item, ast.Import):
            yield from (alias.name for alias in item.names)
        elif isinstance(item, ast.ImportFrom):
            yield from (f"{item.module}.{alias.name}" for alias in item.names)


def relative(path: Path) -> str:
    return path.relative_to(REPO).as_posix()


def layer(name: str) -> int:
    """Place in the arrow. `ubert` itself is the front door: it opens any part of the library, no part opens it."""
    parts = [*name.split("."), ""]
    if parts[0] == "pipelines":
        return len(ARROW) + 1
    return ARROW.index(parts[1]) if parts[1] in ARROW else len(ARROW)


def in_ubert() -> list[Path]:
    return [path for path in FILES if path.is_relative_to(REPO / "ubert")]


def test_imports_go_one_way() -> None:
    backwards = [
        f"{relative(path)} imports {name}"
        for path in FILES
        for name in imports(tree(path))
        if name.split(".")[0] in ("ubert", "pipelines") and layer(name) > layer(module_name(path))
    ]
    assert not backwards, "what comes after it in schema <- ... <- pipelines"


def test_no_relative_imports() -> None:
    assert not [
        f"{relative(path)}:{item.lineno}"
        for path in FILES
        for item in ast.walk(tree(path))
        if isinstance(item, ast.ImportFrom) and item.level
    ]


def test_the_schema_has_no_torch() -> None:
    for path in (REPO / "ubert" / "schema").rglob("*.py"):
        assert not {"torch", "transformers"} & {name.split(".")[0] for name in imports(tree(path))}, path


def test_the_library_has_no_cluster_no_database_and_no_network() -> None:
    """Ray and DuckDB belong to pipelines. The library reads what it is given; transformers alone may fetch."""
    used = {(relative(path), name.split(".")[0]) for path in in_ubert() for name in imports(tree(path))}
    assert not [(path, package) for path, package in used if package in {"ray", "duckdb", *NETWORK}]


def test_files_are_short() -> None:
    lines = {relative(path): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert {path: n for path, n in lines.items() if n > 400} == {}, "they ask to be two files"


def test_files_that_are_not_code_are_installed() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"].items()
    installed = {
        path for package, of in patterns for one in of for path in (REPO / package.replace(".", "/")).glob(one)
    }
    there = [path for package in ("ubert", "pipelines") for path in (REPO / package).rglob("*.*")]
    assert {path for path in there if path.suffix != ".py" and path.parent.name != "__pycache__"} == installed
    assert REPO / "ubert" / "py.typed" in installed, "without it, users get no types"


def unsafe(path: Path) -> Iterator[str]:
    """Whatever could run code that came as data, with its line."""
    for name in imports(tree(path)):
        if (
            name.split(".")[0] in PICKLES and name != "pickle.UnpicklingError"
        ):  # torch's restricted loader raises it
            yield f"{name} is a pickle"
    for item in ast.walk(tree(path)):
        if not isinstance(item, ast.Call):
            continue
        called = ast.unparse(item.func)
        if called in ("eval", "exec", "compile", "__import__", "torch.load", "yaml.load", "yaml.unsafe_load"):
            yield f"line {item.lineno}: {called}"
        for keyword in item.keywords:
            given = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
            if keyword.arg in ("trust_remote_code", "allow_pickle", "shell") and not given:
                yield f"line {item.lineno}: {keyword.arg}"


def test_no_data_becomes_code() -> None:
    assert not [f"{relative(path)}: {found}" for path in FILES for found in unsafe(path)]


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from cloudpickle import dumps",
        "eval('1')",
        "torch.load(path)",
        "yaml.load(text)",
        "AutoModel.from_pretrained(name, trust_remote_code=True)",
        "AutoModel.from_pretrained(name, trust_remote_code=trust)",
        "numpy.load(path, allow_pickle=True)",
    ],
)
def test_the_fence_sees_unsafe_code(tmp_path: Path, code: str) -> None:
    path = tmp_path / "module.py"
    path.write_text(code)
    assert list(unsafe(path))


WATCHED_IMPORT = """
import importlib, os, sys
from pathlib import Path

outside, ours = sys.argv[1].split(","), sys.argv[2].split(",")
for name in outside:
    module, _, attribute = name.partition(":")
    getattr(importlib.import_module(module), attribute or "__name__")

allowed = tuple(os.path.realpath(folder) for folder in (sys.prefix, sys.base_prefix, sys.argv[3]))
threads = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0
found = []

def watch(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes)):
        path = os.path.realpath(os.fsdecode(arguments[0]))
        writes = (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR)
        if writes or not path.startswith((*allowed, "/proc/", "/sys/", "/dev/")):
            found.append(f"{event} {path}")
    elif event.split(".")[0] in ("subprocess", "socket", "urllib", "ftplib") or event in (
        "os.system", "os.fork", "os.posix_spawn", "os.exec", "os.mkdir", "os.remove", "os.rename", "os.putenv",
    ):
        if event not in ("socket.__new__", "socket.gethostname"):
            found.append(f"{event} {arguments}")

sys.addaudithook(watch)
for name in ours:
    importlib.import_module(name)
print("\\n".join(found))
"""


def test_imports_are_inert() -> None:
    """Importing every module, other libraries apart, starts no process and touches no file outside the package."""
    outside = {
        ":".join(name.rsplit(".", 1)) if isinstance(item, ast.ImportFrom) else name
        for path in FILES
        for item in tree(path).body
        if isinstance(item, ast.Import | ast.ImportFrom)
        for name in imports(item)
        if name.split(".")[0] not in ("ubert", "pipelines", "__future__")
    }
    ours = ",".join(module_name(path) for path in FILES)
    found = _python(WATCHED_IMPORT, ",".join(sorted(outside)), ours, str(REPO))
    assert found == "\n", found


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("ubert", "torch pyarrow"),
        ("ubert.schema.record", "torch ray"),
        ("pipelines.cli.commands", "torch ray duckdb"),
    ],
)
def test_light_imports_stay_light(module: str, heavy: str) -> None:
    """`import ubert` costs nothing, and `ubert --help` doesn't wait for torch and Ray."""
    loaded = _python(f"import sys, {module}; print(*sys.modules)").split()
    assert not set(heavy.split()) & set(loaded)


def _python(code: str, *arguments: str) -> str:
    """Run code without writing bytecode, which other processes may not have written yet. Return its output."""
    command = [sys.executable, "-B", "-c", code, *arguments]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=HANGS)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_folder_has_few_files() -> None:
    """At most 15 modules side by side, so that a reader finds the one to change by its name."""
    files = [*FILES, *(REPO / "tests").rglob("*.py")]
    counted = Counter(relative(path.parent) for path in files if path.name != "__init__.py")
    assert {folder: n for folder, n in counted.items() if n > 15} == {}
