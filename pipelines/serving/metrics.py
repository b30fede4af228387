"""The server's metrics for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The metrics of one app."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "ubert_requests", "Requests by path and status.", ["path", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "ubert_request_seconds",
            "Seconds until a request is answered.",
            ["path"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.batches = Histogram("ubert_batch_texts", "Texts of a batch.", buckets=TEXTS, registry=self.registry)
        self.waiting = Gauge("ubert_waiting_texts", "Texts that wait for the model.", registry=self.registry)

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self.registry)
