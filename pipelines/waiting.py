"""How OpenMP's threads wait for the next part of a computation: in a loop for some 50 us, then asleep.

By default those of GNU OpenMP, which torch has, loop for milliseconds, and take the processor from whatever else
the machine does. Where several processes compute, each is then up to ten times slower. Threads that sleep at once
(`OMP_WAIT_POLICY=passive`) must be woken thousands of times per second. docs/benchmarks.md, "Threads that wait".
"""

from __future__ import annotations

import os

VARIABLES = {"GOMP_SPINCOUNT": "1000", "OMP_WAIT_POLICY": "passive"}  # the second is for other OpenMP libraries


def set_variables() -> None:
    """Set the environment variables, unless the user has. OpenMP reads them once, when torch is imported."""
    os.environ |= variables()


def variables() -> dict[str, str]:
    """Return those variables that the user has set, or else all of ours: the first would override the second."""
    return {name: os.environ[name] for name in VARIABLES if name in os.environ} or VARIABLES
