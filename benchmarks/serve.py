"""Load on `ubert serve`: the server with its defaults against the same server without batches (`--together 1`).

Each client on loopback sends one short text after another, with five categories, over its own connection. After a
429 it waits as long as the response says. Both servers run all the time, and take the load alternately. Any status
other than 200 and 429 ends the benchmark. `answered with 429` counts those. `processor time` is the server's, for
each request that it answers with predictions. `memory` compares the batching server after its last round and after
its first.

`the model alone` is `predict` in this process on one thread: 8, 32 or 64 of the texts in one call against one in a
call. Batches can't save more than that.

    python benchmarks/serve.py [--quick] [--clients 200] [--seconds 60]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import psutil
import torch
from measure import ENCODER, report, seconds
from predict import TYPES, samples

from ubert.inference.predictor import Predictor
from ubert.model.tokenizer import encoder_path, load_tokenizer
from ubert.model.ubert import Shape, UbertModel

READY = 300  # maximum seconds until a server answers for the first time


class Load(NamedTuple):
    """Results of all clients: seconds of each response with status 200, and counts by status."""

    seconds: list[float]
    statuses: Counter[int]


async def load(address: str, bodies: Sequence[bytes], clients: int, seconds: float) -> Load:
    """Send requests from all clients concurrently for a number of seconds."""
    found = Load([], Counter())
    ends = time.perf_counter() + seconds

    async def client(number: int) -> None:
        reader, writer = await asyncio.open_connection(urlsplit(address).hostname, urlsplit(address).port)
        turn = number
        while time.perf_counter() < ends:
            began = time.perf_counter()
            status, wait = await answer(reader, writer, bodies[turn % len(bodies)])
            found.statuses[status] += 1
            if status == 200:
                found.seconds.append(time.perf_counter() - began)
            await asyncio.sleep(min(wait, max(0.0, ends - time.perf_counter())))
            turn += clients
        writer.close()

    await asyncio.gather(*map(client, range(clients)))
    return found


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> tuple[int, int]:
    """Send a request; return its status, and the seconds to wait before the next."""
    head = f"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    writer.write(f"{head}\r\n\r\n".encode() + body)
    status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().strip().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    await reader.readexactly(int(headers["content-length"]))
    return int(status.split()[1]), int(headers.get("retry-after", "0"))


@contextmanager
def server(checkpoint: Path, body: bytes, *options: str) -> Iterator[tuple[str, psutil.Process]]:
    """Start a server and wait until it has loaded its model; yield its address and process."""
    command = [sys.executable, "-u", "-m", "pipelines.cli", "serve", str(checkpoint), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            began = time.perf_counter()
            address = process.stdout.readline().split()[0]
            listens = time.perf_counter() - began
            while not asyncio.run(load(address, [body], 1, 0.01)).statuses[200]:
                assert time.perf_counter() - began < READY, "the server never answered"
            answers = time.perf_counter() - began
            took = f"listens after {listens:.1f} s, answers after {answers:.1f} s"
            print(f"{' '.join(options) or 'batches'}: {took}", file=sys.stderr, flush=True)
            yield address, psutil.Process(process.pid)
        finally:
            process.terminate()


def alone(predictor: Predictor, runs: int) -> None:
    """Compare the model's time for a text in batches with that of single texts."""
    torch.set_num_threads(1)
    texts = [text[:80] for text in samples(64)]
    ask = partial(predictor.predict, task="ner", categories=TYPES[:5])
    for size in (8, 32, 64):
        batch, single = seconds(
            partial(ask, texts[:size]), lambda: [ask([text]) for text in texts[:8]], runs, time.process_time
        )
        case = f"the model alone, {size} texts a call / 1"
        report("serve", case, round(1e3 * batch / size, 2), round(1e3 * single / 8, 2), "ms/text", runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three seconds of load a side: within a minute")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds of load on each side")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    duration, rounds = (3.0, 1) if given.quick else (given.seconds / given.rounds, given.rounds)
    asked = {"task": "ner", "categories": TYPES[:5]}
    bodies = [json.dumps({**asked, "texts": [text[:80]]}).encode() for text in samples(512)]
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = load_tokenizer(ENCODER)
        UbertModel.new(encoder_path(ENCODER), Shape(), vocabulary=tokenizer.vocabulary, seed=0).save(Path(folder))
        tokenizer.save(Path(folder))
        alone(Predictor.load(Path(folder)), 3 if given.quick else 9)
        with server(Path(folder), bodies[0]) as ours, server(Path(folder), bodies[0], "--together", "1") as theirs:
            memory, processor = list[float](), (list[float](), list[float]())
            sides = (list[Load](), list[Load]())
            for address, _ in (ours, theirs):  # warm up, so that both know their own speed
                asyncio.run(load(address, bodies, given.clients, 0.1 * duration))
            for _ in range(rounds):
                for (address, process), side, used in zip((ours, theirs), sides, processor, strict=True):
                    before = sum(process.cpu_times()[:2])
                    side.append(asyncio.run(load(address, bodies, given.clients, duration)))
                    used.append(sum(process.cpu_times()[:2]) - before)
                    if side is sides[0]:
                        memory.append(process.memory_info().rss / 2**20)
    for found in (*sides[0], *sides[1]):
        assert set(found.statuses) <= {200, 429}, found.statuses
    n = sum(len(one.seconds) for one in sides[0])
    rates = [statistics.median(len(one.seconds) / duration for one in side) for side in sides]
    report("serve", f"{given.clients} clients", round(rates[0], 1), round(rates[1], 1), "requests/s", n, more=True)
    ms = [
        1e3 * sum(used) / sum(len(one.seconds) for one in side)
        for used, side in zip(processor, sides, strict=True)
    ]
    report("serve", "processor time", round(ms[0], 2), round(ms[1], 2), "ms/request", n)
    for share in (50, 95, 99):
        ms = [
            1e3 * statistics.median(statistics.quantiles(one.seconds, n=100)[share - 1] for one in side)
            for side in sides
        ]
        report("serve", f"latency, {share} of 100 requests", round(ms[0]), round(ms[1]), "ms", n)
    report("serve", "memory, last round / first", round(memory[-1], 1), round(memory[0], 1), "MiB", rounds)
    refused = [sum(one.statuses[429] for one in side) for side in sides]
    report("serve", "answered with 429", refused[0], refused[1], "requests", n)


if __name__ == "__main__":
    main()
