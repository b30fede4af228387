"""What a job sends to a cluster, and what is printed of its jobs. The cluster's answers are set by the test."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.job_submission import JobStatus

from pipelines import jobs
from ubert.schema.errors import UserError

BEGAN = 1_767_225_600_000  # 2026-01-01, in milliseconds


def job(name: str = "films", status: str = "RUNNING", **known: Any) -> Any:
    common = {"type": "SUBMISSION", "metadata": None, "entrypoint": "e", "start_time": BEGAN, "end_time": None}
    return SimpleNamespace(submission_id=name, status=JobStatus(status), **{**common, **known})


class Cluster:
    """A cluster's client. Each question about a job takes the next of `jobs`."""

    def __init__(self, *jobs: Any, log: tuple[str, ...] = ()) -> None:
        self.jobs, self.log = list(jobs), log
        self.asked: dict[str, Any] = {}
        self.sent: set[str] = set()

    def get_address(self) -> str:
        return "http://host:8265"

    def list_jobs(self) -> list[Any]:
        return self.jobs

    def get_job_info(self, job: str) -> Any:
        return self.jobs.pop(0)

    async def tail_job_logs(self, job: str) -> AsyncIterator[str]:
        for lines in self.log:
            yield lines

    def submit_job(self, **asked: Any) -> str:
        folder = Path(asked["runtime_env"]["working_dir"])
        self.sent = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        self.asked = asked
        return str(asked["submission_id"])


def cluster(*jobs: Any, log: tuple[str, ...] = ()) -> Any:
    return Cluster(*jobs, log=log)


def test_jobs_are_listed_with_the_newest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.jobs.time.time", lambda: BEGAN / 1000 + 3_780)
    told = jobs.listed(
        cluster(
            job("ended", "SUCCEEDED", metadata={"command": "ubert ingest a"}, end_time=BEGAN + 90_000),
            job("of-ray", type="DRIVER"),
            job("running", metadata={"other": "x"}, start_time=BEGAN + 3_600_000),
        )
    )
    assert [tuple(row.values()) for row in told.to_pylist()] == [
        ("running", "e", "running", "2026-01-01 01:00:00", 3.0),
        ("ended", "ubert ingest a", "succeeded", "2026-01-01 00:00:00", 1.5),
    ]
    assert len(jobs.listed(cluster())) == 0
    assert jobs.status(cluster(job(status="PENDING")), "films") == "pending"


def test_no_job_lasts_less_than_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if this clock is behind the cluster's, or the cluster's was set back."""
    monkeypatch.setattr("pipelines.jobs.time.time", lambda: BEGAN / 1000 - 3_600)
    told = jobs.listed(cluster(job("running"), job("ended", "SUCCEEDED", end_time=BEGAN - 90_000)))
    assert [row["minutes"] for row in told.to_pylist()] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("status", "code", "ended"),
    [("SUCCEEDED", 0, 0), ("SUCCEEDED", None, 0), ("FAILED", 2, 2), ("FAILED", -9, 137)],
)
def test_the_log_of_a_job_is_printed_until_its_end(
    status: str, code: int | None, ended: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(jobs, "POLL", 0)
    last = job(status=status, driver_exit_code=code, message="")
    assert jobs.follow(cluster(job(), job(), last, log=("a\nb", "c\n")), "films") == ended
    assert capsys.readouterr().out == "a\nbc\n"


@pytest.mark.parametrize(
    ("status", "message", "told"),
    [
        ("STOPPED", "", "was stopped"),
        ("FAILED", "\n no CPU\nmore", "run: no CPU$"),
        ("FAILED", None, "run: no reason"),
    ],
)
def test_a_job_that_did_not_run_to_its_end_is_an_error(status: str, message: str | None, told: str) -> None:
    with pytest.raises(UserError, match=rf"^job films .*{told}"):
        jobs.follow(cluster(job(status=status, driver_exit_code=None, message=message)), "films")


def test_code_and_specs_are_sent_and_folders_are_named_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        *("code/pipelines/a.py", "code/pipelines/__pycache__/a.pyc", "code/ubert/deep/b.py", "code/other/c.py"),
        *("specs/datasets/toy.yaml", "specs/paraphrases.yaml", "specs/store/secret"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr(jobs, "CODE", tmp_path / "code")
    monkeypatch.chdir(tmp_path)
    for data in (Path("raw"), None):
        client = cluster()
        made = jobs.submit(client, ["ingest", "a b"], root=Path("store"), data=data, specs=Path("specs"))
        assert re.fullmatch("ingest-[0-9a-f]{6}", made)
        sent = {"corpus_specs/datasets/toy.yaml", "corpus_specs/paraphrases.yaml"}
        assert client.sent == {"pipelines/a.py", "ubert/deep/b.py", *sent}
        assert client.asked["entrypoint"] == "python -m pipelines.cli ingest 'a b'"
        assert client.asked["metadata"] == {"command": "ubert ingest 'a b'"}
        variables = client.asked["runtime_env"]["env_vars"]
        assert variables["UBERT_ROOT"] == str(tmp_path / "store")
        assert variables.get("UBERT_DATA") == (None if data is None else str(tmp_path / "raw"))
