"""Results of a prediction as Python objects, dictionaries, a dataframe, or HTML for a notebook."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ubert.inference.html import predictions_to_html
from ubert.objectives import Prediction

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 50  # texts that a notebook draws


class Result(list[Prediction]):
    """The predictions of one text, with the text."""

    def __init__(self, predictions: Iterable[Prediction], text: str, pair: str | None = None) -> None:
        super().__init__(predictions)
        self.text = text
        self.pair = pair

    def to_dict(self) -> dict[str, Any]:
        """Return the text and its predictions as `ubert predict` prints them."""
        pair = {} if self.pair is None else {"pair": self.pair}
        return {"text": self.text, **pair, "predictions": [asdict(prediction) for prediction in self]}

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row per prediction; see `Results.to_dataframe`."""
        return Results([self]).to_dataframe()

    def _repr_html_(self) -> str:
        return predictions_to_html(self.text, self, self.pair)


class Results(list[Result]):
    """The results of several texts, in order."""

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the dictionary of each text."""
        return [result.to_dict() for result in self]

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row per prediction. The column `row` is the index of its text.

        Nested fields have a dot in their name, such as `head.start`; fragments, arguments and mentions stay lists.
        """
        import pandas as pd

        rows = [{"row": row, **asdict(prediction)} for row, result in enumerate(self) for prediction in result]
        return pd.json_normalize(rows) if rows else pd.DataFrame(columns=["row"])

    def _repr_html_(self) -> str:
        left = f"<p>and {len(self) - SHOWN:,} more</p>" if len(self) > SHOWN else ""
        return "<hr>".join(result._repr_html_() for result in self[:SHOWN]) + left
