"""One local Ray for all tests, with folders of its own."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import browser
import pytest
from hypothesis import settings
from object_store import ENVIRONMENT, ObjectStore, serve

from pipelines.store.storage import ObjectPath

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny models: threads that wait for one another cost more
os.environ.setdefault("RAY_gcs_server_port_wait_time_s", "120")  # of a busy machine; 30 by default
if not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"  # kernels without a GPU; decided when triton is first imported
signal.signal(signal.SIGINT, signal.default_int_handler)  # or what tests start ignores it where the shell does
settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def object_store_socket() -> Iterator[socket.socket]:
    """Where the object store will answer: the port is taken before anything else can have it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken


@pytest.fixture(scope="session")
def object_store_environment(object_store_socket: socket.socket) -> dict[str, str]:
    """What leads to the object store, also before it is there: workers inherit it when Ray starts."""
    return {**ENVIRONMENT, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{object_store_socket.getsockname()[1]}"}


@pytest.fixture(scope="session")
def object_store(
    object_store_socket: socket.socket, object_store_environment: dict[str, str]
) -> Iterator[ObjectStore]:
    """An object store on loopback, with the bucket `bucket`."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in object_store_environment.items():
            patch.setenv(name, value)
        with serve(object_store_socket) as store:
            yield store


@pytest.fixture
def remote(object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectPath:
    """A store in the object store that no other test uses. What of it lies on disk is below `tmp_path`."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    return ObjectPath(f"bucket/{tmp_path.name}/store")


@pytest.fixture(scope="session")
def local_ray(object_store_environment: dict[str, str]) -> Iterator[None]:
    """A local Ray of two CPUs, whose workers know the object store. Its folder is made here because Ray's socket
    paths must be short."""
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
    """A tab of a headless Chromium, which CI must have."""
    if browser.find() is None:
        assert not os.environ.get("CI"), "CI needs a browser: apt-get install chromium"
        pytest.skip("no Chromium on this machine: pages are looked at where there is one")
    with browser.page(tmp_path_factory.mktemp("browser")) as page:
        yield page
