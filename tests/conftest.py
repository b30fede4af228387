"""Shared fixtures: one local Ray with its own folders, an object store, and a browser."""

from __future__ import annotations

import functools
import gc
import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import browser
import pytest
import typer.main
from hypothesis import settings
from object_store import ENVIRONMENT, ObjectStore, serve

from pipelines.store.storage import ObjectPath

os.environ.setdefault("OMP_NUM_THREADS", "1")  # for tiny models, synchronising threads costs more than it gains
os.environ.setdefault("RAY_gcs_server_port_wait_time_s", "120")  # for a busy machine; 30 by default
# Nobody takes the one machine of `local_ray` away. Clusters that tests start don't inherit this.
os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")
# Ray's helpers look at its logs and processes for a dashboard that no test opens.
os.environ.setdefault("RAY_LOG_MONITOR_MANY_FILES_THRESHOLD", "0")
os.environ.setdefault("LOG_NAME_UPDATE_INTERVAL_S", "60")
os.environ.setdefault("REPORTER_UPDATE_INTERVAL_MS", "60000")
if not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"  # kernels without a GPU; triton reads this when it is first imported
signal.signal(signal.SIGINT, signal.default_int_handler)  # else child processes inherit a shell's ignored SIGINT
typer.main.get_command = functools.cache(typer.main.get_command)  # a tenth of a second for each call of the app
gc.disable()  # until all tests are collected: it would search a million new objects, most of them of imports
settings.register_profile("untimed", deadline=None)  # a busy machine must not fail tests
settings.load_profile("untimed")


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def no_variables_of_the_user() -> Iterator[None]:
    """Hide the user's store, mirror and specs, so that no test writes there. Modules read UBERT_DATA before."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("UBERT_DATA", "UBERT_ROOT", "UBERT_SPECS"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session")
def object_store_socket() -> Iterator[socket.socket]:
    """Bind the object store's port early, before another process can take it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken


@pytest.fixture(scope="session")
def object_store_environment(object_store_socket: socket.socket) -> dict[str, str]:
    """Return the environment variables of the object store. Ray's workers inherit them, so they are set first."""
    return {**ENVIRONMENT, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{object_store_socket.getsockname()[1]}"}


@pytest.fixture(scope="session")
def object_store(
    object_store_socket: socket.socket, object_store_environment: dict[str, str]
) -> Iterator[ObjectStore]:
    """Serve an object store on loopback with the bucket `bucket`."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in object_store_environment.items():
            patch.setenv(name, value)
        with serve(object_store_socket) as store:
            yield store


@pytest.fixture
def remote(object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectPath:
    """Return a store in the object store that no other test uses. Its local files are below `tmp_path`."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    return ObjectPath(f"bucket/{tmp_path.name}/store")


@pytest.fixture(scope="session")
def local_ray(object_store_environment: dict[str, str]) -> Iterator[None]:
    """Start a local Ray with two CPUs, whose workers have the object store's environment.

    Its folder is not below `tmp_path`, because Ray's socket paths must be short.
    """
    import ray

    with tempfile.TemporaryDirectory(prefix="ubert-") as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", home)
        patch.setenv("RAY_TMPDIR", str(Path(home) / "ray"))
        patch.delenv("RAY_ADDRESS", raising=False)
        for name, value in object_store_environment.items():
            patch.setenv(name, value)
        ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
        yield
        ray.shutdown()


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Page]:
    """Open a tab of a headless Chromium, which CI must have."""
    if browser.find() is None:
        assert not os.environ.get("CI"), "CI needs a browser: apt-get install chromium"
        pytest.skip("no Chromium on this machine: pages are looked at where there is one")
    with browser.page(tmp_path_factory.mktemp("browser")) as page:
        yield page
