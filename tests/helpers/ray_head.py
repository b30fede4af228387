"""A real Ray head on loopback, started by `cluster/laptop.sh`, and `ubert` commands run as its user would."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from waiting import HANGS, wait_for

REPO = Path(__file__).resolve().parents[2]
PORTS = ("port", "dashboard-port", "ray-client-server-port", "dashboard-agent-listen-port")
PATIENCE = "RAY_gcs_server_port_wait_time_s"  # see conftest.py


@dataclass(frozen=True)
class Head:
    """A running Ray head.

    Attributes:
        address: URL for jobs.
        gcs: address for nodes and drivers.
        home: home directory, with the token of the cluster.
        folder: Ray's folder for unpacked files and logs.
    """

    address: str
    gcs: str
    home: Path
    folder: Path

    def popen(self, *arguments: str, **changed: str) -> subprocess.Popen[str]:
        """Start `ubert ARGUMENTS`, with `changed` environment variables."""
        return subprocess.Popen(
            [sys.executable, "-m", "pipelines.cli", *arguments],
            env=environment(self.home) | {"RAY_API_SERVER_ADDRESS": self.address} | changed,
            cwd=self.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ubert(self, *arguments: str, **changed: str) -> tuple[int, str, str]:
        """Run `ubert ARGUMENTS`; return its exit code, stdout and stderr."""
        with self.popen(*arguments, **changed) as running:
            out, err = running.communicate(timeout=HANGS)
        return running.returncode, out, err


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a user with home `home` and no variables of Ray or ubert, except `PATIENCE`."""
    unset = {name for name in os.environ if name.startswith(("RAY_", "UBERT_"))} - {PATIENCE}
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return kept | {"HOME": str(home), "PATH": path, "PYTHONPATH": str(REPO), "COLUMNS": "120"}


def driven(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a script that starts its own Ray without token authentication.

    If this process has a Ray, Ray has set variables that require a token, so the script gets a clean environment.
    """
    with tempfile.TemporaryDirectory(prefix="ubert-") as home:  # Ray's socket paths must be short
        done = subprocess.run(
            [sys.executable, "-c", script, *map(str, arguments)],
            env=environment(Path(home)) | {"RAY_TMPDIR": f"{home}/ray"},
            cwd=REPO,
            capture_output=True,
            text=True,
            timeout=HANGS,
        )
    assert done.returncode == 0, done.stderr
    return done


@contextmanager
def head() -> Iterator[Head]:
    """Start a head with two CPUs and its own folders; afterwards end it and its descendants by process id."""
    with tempfile.TemporaryDirectory(prefix="ubert-") as folder:  # Ray's socket paths must be short
        home, ray = Path(folder, "home"), Path(folder, "ray")
        home.mkdir()
        ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        options = [f"--{name}={port}" for name, port in ports.items()]
        log = Path(folder, "log")
        with log.open("wb") as output:
            process = psutil.Popen(
                ["sh", str(REPO / "cluster/laptop.sh"), *options, "--num-cpus=2", f"--temp-dir={ray}"],
                env=environment(home),
                stdout=output,
                stderr=output,
            )
        try:
            started = Head(f"http://127.0.0.1:{ports['dashboard-port']}", f"127.0.0.1:{ports['port']}", home, ray)
            wait_for(lambda: started.ubert("jobs")[0] == 0 or process.poll() is not None)
            assert process.poll() is None, log.read_text(encoding="utf-8")
            yield started
        finally:
            stop(process)


@contextmanager
def node(cluster: Head, **changed: str) -> Iterator[psutil.Popen]:
    """Start another node with two CPUs by `ray start`, with its own ports and `changed` environment variables."""
    ports = free_ports(2)
    started = psutil.Popen(
        [
            *(str(Path(sys.executable).parent / "ray"), "start", "--block", "--num-cpus=2"),
            "--node-ip-address=127.0.0.1",
            f"--address={cluster.gcs}",
            f"--dashboard-agent-listen-port={ports[0]}",
            f"--dashboard-agent-grpc-port={ports[1]}",
        ],
        env=environment(cluster.home) | {"RAY_AUTH_MODE": "token"} | changed,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield started
    finally:
        stop(started)


def stop(process: psutil.Popen) -> None:
    """Terminate a process; kill it and its descendants after a timeout."""
    family = [process, *process.children(recursive=True)]
    process.terminate()
    for one in psutil.wait_procs(family, timeout=10)[1]:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    process.wait(timeout=HANGS)


def below(pid: int, name: str) -> list[psutil.Process]:
    """Return the descendants of a process whose names begin with `name`."""
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # some that Ray starts end at once
            found += [process] * process.name().startswith(name)
    return found


def free_ports(count: int) -> list[int]:
    """Find unused ports on loopback, below the ephemeral range, so that the system does not hand them out."""
    found: list[int] = []
    for port in random.sample(range(20_000, 32_000), 1_000):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(port)
        if len(found) == count:
            break
    return found
