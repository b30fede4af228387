"""One Ray cluster for all trials, for machines that are too busy to start one for each command."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from ray_head import free_ports

STARTS = 900.0  # timeout in seconds
LOOPBACK = ("--node-ip-address=127.0.0.1", "--disable-usage-stats")
# If the agents' ports are given, Ray doesn't wait until the agents have started and chosen some.
AGENTS = (
    "dashboard-agent-grpc-port",
    "dashboard-agent-listen-port",
    "runtime-env-agent-port",
    "metrics-export-port",
)


@dataclass
class Cluster:
    """A head that starts on demand, and again after a fault has ended it."""

    folder: Path
    environ: dict[str, str]
    process: psutil.Popen | None = None
    gcs: str = ""

    def address(self) -> str:
        """Return the head's address; start it if necessary."""
        while self.process is None:
            self._start()
        return self.gcs

    def family(self) -> list[psutil.Process]:
        """Return all processes of the head."""
        with suppress(psutil.NoSuchProcess):
            return [self.process, *self.process.children(recursive=True)] if self.process else []
        return []

    def end(self) -> None:
        """Kill the head, by the ids of its processes."""
        if self.process is None:
            return
        for one in self.family():
            with suppress(psutil.NoSuchProcess):
                one.kill()
        self.process.wait()
        self.process = None

    def _start(self) -> None:
        first, *ports = free_ports(1 + len(AGENTS))
        self.gcs = f"127.0.0.1:{first}"
        options = [f"--{name}={port}" for name, port in zip(AGENTS, ports, strict=True)]
        log = self.folder / "head.log"
        with log.open("wb") as output:
            ray = str(Path(sys.executable).parent / "ray")
            self.process = psutil.Popen(
                [ray, "start", "--head", "--block", *LOOPBACK, f"--port={first}", "--num-cpus=2", *options],
                env=self.environ,
                stdout=output,
                stderr=output,
            )
        until = time.monotonic() + STARTS
        while self.process.poll() is None and time.monotonic() < until:
            if b"Ray runtime started" in log.read_bytes():
                return
            time.sleep(0.2)
        self.end()
