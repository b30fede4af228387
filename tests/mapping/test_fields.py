"""Fields of a row by their type."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.mapping.fields import whole_field
from pipelines.mapping.paths import Scope
from pipelines.mapping.refused import RefusedError

MOST = 2**31 - 1


@pytest.mark.parametrize(
    ("given", "number"),
    [(3, 3), (0, 0), ("3", 3), ("-3", -3), ("007", 7), (MOST, MOST), (-MOST, -MOST), ("999999999", 999_999_999)],
)
def test_a_whole_number_may_be_a_string(given: Any, number: int) -> None:
    assert whole_field("n")(Scope({"n": given}, {}, {})) == number


@pytest.mark.parametrize(
    "given", [MOST + 1, -MOST - 1, "1000000000", 3.0, True, "3.0", "--3", "-", "", " 3", "1_0", "\u0663", [3]]
)
def test_what_is_no_whole_number_of_a_text_is_refused(given: Any) -> None:
    with pytest.raises(RefusedError) as error:
        whole_field("n")(Scope({"n": given}, {}, {}))
    assert error.value.reason == "wrong type"
