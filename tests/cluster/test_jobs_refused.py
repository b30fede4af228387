"""Errors before any cluster is asked, and the meaning of `--all`."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ray_head import Head, free_ports
from test_jobs import dataset, write_rows
from typer.testing import CliRunner

from pipelines.cli.commands import app
from pipelines.ingest.ingest import with_sources
from pipelines.mirror.fetch import fetch
from ubert.schema.errors import UserError


@pytest.fixture
def nowhere(tmp_path: Path) -> Head:
    """A user without a token, and an address where nothing listens."""
    address, gcs = (f"127.0.0.1:{port}" for port in free_ports(2))
    return Head(f"http://{address}", gcs, tmp_path, tmp_path)


def test_without_a_token_nothing_is_sent(nowhere: Head) -> None:
    code, out, err = nowhere.ubert("submit", "--", "ingest", "--all")
    assert (code, out) == (1, "")
    assert err == (
        f"error: {nowhere.address}: a job needs the cluster's token, and this machine has none; put it into "
        "~/.ray/auth_token, or name its file in RAY_AUTH_TOKEN_PATH\n"
    )


def test_no_cluster_gives_one_clear_error(nowhere: Head) -> None:
    for command in (["jobs"], ["submit", "--", "ingest", "--all"]):
        code, out, err = nowhere.ubert(*command, RAY_AUTH_TOKEN="0" * 64)
        assert (code, out) == (1, "")
        assert err.startswith(f"error: {nowhere.address}: no Ray cluster answers") and err.count("\n") == 1


def test_an_address_of_another_kind_gives_one_clear_error(nowhere: Head) -> None:
    code, _, err = nowhere.ubert("jobs", "--address", "10.0.0.1:6379")
    assert code == 1
    assert err.startswith("error: 10.0.0.1:6379: expected the address of a cluster's dashboard, such as http://")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["submit"], "Missing argument"),
        (["submit", "--", "ingset"], "'ingset' can't run as a job"),
        (["submit", "--", "jobs"], "'jobs' can't run as a job"),
        (["submit", "--stop", "--", "ingest"], "No such option"),
        (["jobs", "--stop"], "--stop needs the id of a job"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())


@pytest.fixture
def specs(tmp_path: Path) -> Path:
    """Specs of three datasets: in the mirror, to be fetched, and nowhere."""
    write_rows(tmp_path / "raw/films/train.jsonl", 4)
    (tmp_path / "specs/datasets").mkdir(parents=True)
    for name, more in (
        ("films", {}),
        ("remote", {"fetch": [{"url": "https://host/train.jsonl"}]}),
        ("absent", {}),
    ):
        path = tmp_path / f"specs/datasets/{name}.yaml"
        path.write_text(yaml.safe_dump(dataset(name) | more), encoding="utf-8")
    return tmp_path / "specs"


def test_all_is_what_has_sources(specs: Path, tmp_path: Path) -> None:
    assert with_sources(specs, tmp_path / "raw", tmp_path / "store") == (["films"], ["absent", "remote"])


def test_all_is_also_what_is_among_the_samples(specs: Path, tmp_path: Path) -> None:
    (specs / "samples/absent").mkdir(parents=True)
    assert with_sources(specs, None, tmp_path / "store") == (["absent"], ["films", "remote"])


def test_all_leaves_out_what_it_would_download(specs: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "upstream/train.jsonl", 4)
    (specs / "samples/remote").mkdir(parents=True)
    urls = [f"{tmp_path}/upstream/{name}.jsonl" for name in ("train", "test")]
    raw, store, files = tmp_path / "raw", tmp_path / "store", [{"split": "train", "path": "*.jsonl"}]

    def is_taken(*urls: str) -> bool:
        more = {"fetch": [{"url": url} for url in urls], "files": files}
        (specs / "datasets/remote.yaml").write_text(yaml.safe_dump(dataset("remote") | more), encoding="utf-8")
        return "remote" in with_sources(specs, raw, store)[0]

    assert not is_taken(urls[0]), "a sample is not what is fetched"
    list(fetch(["remote"], specs=specs, data=raw, root=store))
    assert is_taken(urls[0])
    assert not is_taken(*urls), "the second was never fetched"
    (raw / "remote/.fetched.json").rename(raw / "remote/.record")
    assert is_taken(*urls), "the folder was filled by hand"
    (raw / "remote/.fetched.json").write_text("broken")
    assert is_taken(*urls), "ingest says what is wrong"
    (raw / "remote/.record").replace(raw / "remote/.fetched.json")
    (raw / "remote/train.jsonl").unlink()
    assert not is_taken(urls[0])


def test_all_of_nothing_is_an_error(specs: Path, tmp_path: Path) -> None:
    (specs / "datasets/remote.yaml").unlink()
    with pytest.raises(UserError, match=r"none of the 2 datasets in .* has all its sources here; .*--data"):
        with_sources(specs, tmp_path / "elsewhere", tmp_path / "store")


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_ingest_all_names_what_it_leaves_out(specs: Path, tmp_path: Path) -> None:
    (specs / "datasets/remote.yaml").unlink()
    where = ["--specs", str(specs), "--data", str(tmp_path / "raw"), "--root", str(tmp_path / "store")]
    done = CliRunner().invoke(app, ["ingest", "--all", *where])
    assert done.exit_code == 0, done.output
    assert "skipped 1 of 2 datasets whose raw sources are not all here: absent" in done.output
    assert "films: 4 records kept" in done.output


def test_hundreds_of_datasets_that_are_left_out_take_no_screens(
    specs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(100):
        name = f"absent{number:03}"
        path = specs / f"datasets/{name}.yaml"
        path.write_text(yaml.safe_dump(dataset(name)), encoding="utf-8")
    monkeypatch.setattr("pipelines.ingest.ingest.ingest", lambda names, **options: None)
    where = ["--specs", str(specs), "--data", str(tmp_path / "raw"), "--root", str(tmp_path / "store")]
    said = CliRunner().invoke(app, ["ingest", "--all", *where]).stderr
    assert said.startswith("skipped 102 of 103 datasets") and "absent000" in said and len(said) < 500
