"""The files of `cluster/`: each is valid for its program, requires the token, and names what exists."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator, Draft202012Validator
from pydantic import ValidationError
from ray_head import REPO, environment
from typer.testing import CliRunner
from waiting import HANGS

from pipelines.cli.commands import app
from pipelines.serving import replicas

CLUSTER = REPO / "cluster"
PAGE = (CLUSTER / "README.md").read_text(encoding="utf-8")
# The documented keys of KubeRay's custom resources that these manifests use. Kubernetes would ignore any other key
# without a warning.
KUBERAY = yaml.safe_load((Path(__file__).parent / "kuberay.yaml").read_text(encoding="utf-8"))


def content(name: str) -> Any:
    return yaml.safe_load((CLUSTER / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["onpremises.yaml", "aws.yaml", "gcp.yaml"])
def test_autoscaler_files_are_what_ray_up_reads(name: str) -> None:
    found = importlib.util.find_spec("ray")
    assert found and found.origin
    ray = Path(found.origin).parent
    schema = json.loads((ray / "autoscaler/ray-schema.json").read_text(encoding="utf-8"))
    given = content(name)
    assert not [error.message for error in Draft7Validator(schema).iter_errors(given)]
    assert list(Draft7Validator(schema).iter_errors(given | {"max_worker": 3})), "the schema sees a wrong key"


@pytest.mark.parametrize("name", ["onpremises.yaml", "aws.yaml", "gcp.yaml"])
def test_machines_start_with_the_token(name: str) -> None:
    given = content(name)
    assert given["file_mounts"] == {"~/.ray/auth_token": "~/.ray/auth_token"}
    for where in ("head", "worker"):
        [start] = (command for command in given[f"{where}_start_ray_commands"] if "ray start" in command)
        assert start.startswith("RAY_AUTH_MODE=token ray start ")


@pytest.mark.parametrize(("name", "kind"), [("raycluster.yaml", "RayCluster"), ("rayjob.yaml", "RayJob")])
def test_manifests_are_what_kuberay_reads(name: str, kind: str) -> None:
    given = content(name)
    check = Draft202012Validator(KUBERAY | {"$ref": f"#/$defs/{kind}"})
    assert not [f"{error.json_path}: {error.message}" for error in check.iter_errors(given)]
    cluster = given["spec"]["rayClusterSpec"] if kind == "RayJob" else given["spec"]
    assert cluster["authOptions"] == {"mode": "token"}
    cluster["workerGroupSpecs"][0]["replica"] = 2
    assert not check.is_valid(given), "the schema sees a wrong key"


def test_a_rayjob_has_the_machines_of_the_raycluster() -> None:
    own = content("rayjob.yaml")["spec"]["rayClusterSpec"]
    cluster = content("raycluster.yaml")["spec"]
    assert own["headGroupSpec"] == cluster["headGroupSpec"]
    [gpu] = own["workerGroupSpecs"]
    [likewise] = (group for group in cluster["workerGroupSpecs"] if group["groupName"] == "gpu")
    assert gpu["template"] == likewise["template"]
    workers = re.search(r"--workers (\d+)", content("rayjob.yaml")["spec"]["entrypoint"])
    assert workers and gpu["replicas"] == int(workers[1])


def test_one_version_of_ray_everywhere() -> None:
    pinned = re.search(r"^ray==(\S+)$", (REPO / "constraints.txt").read_text(encoding="utf-8"), re.M)
    assert pinned
    assert f"FROM rayproject/ray:{pinned[1]}-py311\n" in (CLUSTER / "Dockerfile").read_text(encoding="utf-8")
    assert content("raycluster.yaml")["spec"]["rayVersion"] == pinned[1]
    assert content("rayjob.yaml")["spec"]["rayClusterSpec"]["rayVersion"] == pinned[1]


def test_what_the_dockerfile_copies_exists() -> None:
    lines = (CLUSTER / "Dockerfile").read_text(encoding="utf-8").splitlines()
    copied = [path for line in lines if line.startswith("COPY") for path in line.split()[2:-1]]
    assert copied and all((REPO / path).exists() for path in copied)


def test_the_serve_file_names_what_exists() -> None:
    given = content("serve.yaml")
    [application] = given["applications"]
    assert application["import_path"] == f"{replicas.__name__}:{replicas.build.__name__}"
    replicas.Arguments.model_validate(application["args"])
    with pytest.raises(ValidationError):
        replicas.Arguments.model_validate(application["args"] | {"checkpoints": "x"})
    assert [deployment["name"] for deployment in application["deployments"]] == ["Ubert"]
    schema = pytest.importorskip("ray.serve.schema", reason="needs the extra `serve`")
    schema.ServeDeploySchema.model_validate(given)


def commands() -> list[list[str]]:
    """Every command of the page: of its blocks, and of what is between single backquotes."""
    lines = re.findall(r"^    (\S.*)$", PAGE, re.M) + re.findall(r"`((?:ubert|ray) [^`]+)`", PAGE)
    return [shlex.split(line) for line in lines]


def named(program: str) -> list[tuple[str, ...]]:
    """A program's subcommands and options, as the page has them; of `ubert submit -- X`, also those of X."""
    found = set()
    for words in commands():
        if words[0] == program:
            parts = " ".join(words[1:]).split(" -- ")
            found |= {(part.split()[0], *re.findall(r"--[a-z-]+", part)) for part in parts if part != "COMMAND"}
    return sorted(found)


@pytest.mark.parametrize("given", named("ubert"), ids=" ".join)
def test_commands_of_ubert_on_the_page_exist(given: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [given[0], "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    assert all(option in shown.output for option in given[1:])


@pytest.mark.parametrize("given", named("ray"), ids=" ".join)
def test_commands_of_ray_on_the_page_exist(given: tuple[str, ...], tmp_path: Path) -> None:
    ray = [sys.executable, "-m", "ray.scripts.scripts", given[0], "--help"]
    shown = subprocess.run(ray, env=environment(tmp_path), capture_output=True, text=True, timeout=HANGS)
    assert shown.returncode == 0, shown.stderr
    assert all(option in shown.stdout for option in given[1:])


def test_files_on_the_page_exist() -> None:
    for path in re.findall(r"(?:cluster|docs)/[\w.]+\w", PAGE):
        assert (REPO / path).is_file(), path
    listed = re.findall(r"`([\w.]+)`", "".join(re.findall(r"^\| (`.*?) \|", PAGE, re.M)))
    assert sorted([*listed, "README.md"]) == sorted(path.name for path in CLUSTER.iterdir())
