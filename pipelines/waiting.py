"""How OpenMP's threads wait for the next part of a computation: in a loop for some 50 us, then asleep.

By default those of GNU OpenMP, which torch has, loop for milliseconds, and take the processor from whatever else
the machine does. Where several processes compute, each is then up to ten times slower. Threads that sleep at once
(`OMP_WAIT_POLICY=passive`) must be woken thousands of times per second. docs/benchmarks.md, "Threads that wait".
"""

from __future__ import annotations

import os

VARIABLES = {"GOMP_SPINCOUNT": "1000", "OMP_WAIT_POLICY": "passive"}  # the second is for other OpenMP libraries


def set_variables() -> None:
    """Set the environment variables that the user has not set. OpenMP reads them once, when torch is imported."""
    os.environ |= given()


def given() -> dict[str, str]:
    """Return the variables with the user's values where there are any."""
    return {name: os.environ.get(name, value) for name, value in VARIABLES.items()}
