"""Set how OpenMP's threads wait for their next work: they spin for about 50 us, then sleep.

Torch uses GNU OpenMP, whose threads spin for milliseconds by default and keep other processes from the CPU. If
several processes compute, each is then up to ten times slower. Threads that sleep at once
(`OMP_WAIT_POLICY=passive`) must be woken thousands of times per second; see "Threads that wait" in
docs/benchmarks.md.
"""

from __future__ import annotations

import os

VARIABLES = {"GOMP_SPINCOUNT": "1000", "OMP_WAIT_POLICY": "passive"}  # the second is for other OpenMP libraries


def set_variables() -> None:
    """Set the environment variables, unless the user has. OpenMP reads them once, when torch is imported."""
    os.environ |= variables()


def variables() -> dict[str, str]:
    """Return the variables that the user has set, or all of `VARIABLES` if there are none. The two are not mixed,
    because the user's would override ours."""
    return {name: os.environ[name] for name in VARIABLES if name in os.environ} or VARIABLES
