"""Results as dictionaries, as a table, and as HTML."""

from __future__ import annotations

import pickle
import re
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from ubert.inference.html import Mark, lanes, predictions_to_html
from ubert.inference.results import Result, Results
from ubert.objectives import (
    ClusterPrediction,
    DiscontinuousPrediction,
    EventPrediction,
    LabelPrediction,
    Prediction,
    RelationPrediction,
    SpanPrediction,
    TextPrediction,
    ValuePrediction,
    WrittenPrediction,
)

TEXT = "Ada <b>Marlow</b> left Oslo & Rome."


def span(start: int, end: int, category: str = "person", text: str = TEXT) -> SpanPrediction:
    return SpanPrediction(start, end, category, text[start:end], 0.75)


ADA, OSLO = span(0, 3), span(23, 27, "place")
EVERY: list[Prediction] = [
    LabelPrediction("news & views", 0.9),
    ValuePrediction(2.5),
    ADA,
    DiscontinuousPrediction("pair", (ADA, OSLO), 0.75),
    RelationPrediction("lives in", ADA, OSLO, 0.7),
    EventPrediction("departure", span(18, 22, "departure"), (ADA, span(4, 17))),
    ClusterPrediction((ADA, span(7, 13))),
]


def test_a_dictionary_has_the_fields_of_text_and_predictions() -> None:
    found = Results([Result([ADA], TEXT), Result([], "x", "y")])
    mention = {"start": 0, "end": 3, "category": "person", "text": "Ada", "score": 0.75}
    assert found.to_dicts() == [
        {"text": TEXT, "predictions": [mention]},
        {"text": "x", "pair": "y", "predictions": []},
    ]
    assert found[0].to_dict() == found.to_dicts()[0]


def test_a_table_has_a_row_for_each_prediction() -> None:
    relation = RelationPrediction("lives in", ADA, OSLO, 0.7)
    table = Results([Result([ADA], TEXT), Result([], "x"), Result([OSLO, relation], TEXT)]).to_dataframe()
    assert table["row"].tolist() == [0, 2, 2]
    assert table["category"].tolist() == ["person", "place", "lives in"]
    assert table["head.text"].tolist()[2] == "Ada" and table["tail.start"].tolist()[2] == 23
    assert Results([]).to_dataframe().columns.tolist() == ["row"]
    assert len(Result([ADA], TEXT).to_dataframe()) == 1


def test_results_are_lists_and_survive_pickling() -> None:
    result = Result([ADA], TEXT, "pair")
    again = pickle.loads(pickle.dumps(result))  # noqa: S301
    assert result == [ADA] == again and (again.text, again.pair) == (TEXT, "pair")


class Words(HTMLParser):
    """The characters that a reader sees, without labels."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.styles, self.tags = "", list[str](), set[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.styles.append(dict(attrs).get("style") or "")

    def handle_endtag(self, tag: str) -> None:
        self.styles.pop()

    def handle_data(self, data: str) -> None:
        if not any("user-select:none" in style for style in self.styles):
            self.words += data


def read(html: str) -> Words:
    words = Words()
    words.feed(html)
    assert not words.styles, "every tag is closed"
    return words


def test_html_keeps_the_text_and_runs_nothing_of_it() -> None:
    text = '<script>alert("x")</script> & more'
    words = read(predictions_to_html(text, [span(0, 8, '"><img src=x>', text)]))
    assert words.words == text
    assert words.tags == {"div", "span"}


def test_every_kind_of_prediction_is_drawn() -> None:
    html = predictions_to_html(TEXT, EVERY, "a second text")
    assert "; person: &lt;b&gt;Marlow&lt;/b&gt;" in html
    shown = re.sub(r"<[^>]+>", "", html)
    for part in ("news &amp; views", "2.5", "lives in", "departure", "#7", "a second text"):
        assert part in shown
    assert "Ada → lives in → Oslo" in shown
    assert Result(EVERY, TEXT)._repr_html_() in Results([Result(EVERY, TEXT)] * 2)._repr_html_()
    assert "a second text" in Result([], TEXT, "a second text")._repr_html_()


def test_a_notebook_draws_the_first_texts_and_counts_the_others() -> None:
    html = Results([Result([ADA], TEXT)] * 60)._repr_html_()
    assert html.count("<hr>") == 49 and "and 10 more" in html
    assert "more" not in Results([Result([ADA], TEXT)] * 50)._repr_html_()


def labels(html: str) -> list[tuple[str, str]]:
    """The colour and name of each label, in the order of the text."""
    return re.findall(r';color:rgb\(([\d,]+)\)">([^<]*)</span>', html)


def test_a_mention_is_drawn_once_however_many_relations_it_has() -> None:
    """Its label follows its last word, and it may contain another mention."""
    relations = [RelationPrediction(name, ADA, OSLO, 0.7) for name in ("lives in", "leaves")]
    found = labels(predictions_to_html(TEXT, [ADA, span(0, 17), OSLO, *relations]))
    assert [name for _, name in found] == ["person", "person", "place"]
    assert found[0] == found[1] and found[1][0] != found[2][0]


def test_a_mark_has_the_label_of_what_it_belongs_to() -> None:
    several: list[Prediction] = [DiscontinuousPrediction("pair", (ADA, OSLO), 0.75)]
    several += [ClusterPrediction((ADA,)), ClusterPrediction((OSLO,))]
    several += [EventPrediction("leaving", span(18, 22, "departure"), (span(4, 17, "who"),))]
    titles = re.findall('title="([^"]*)"', predictions_to_html(TEXT, several))
    assert sorted(titles) == ["#2 0.75", "#3 0.75", "leaving 0.75", "pair 0.75", "pair 0.75", "who 0.75"]


def test_colours_begin_anew_when_all_are_used() -> None:
    found = labels(predictions_to_html(TEXT, [span(i, i + 1, f"label {i}") for i in range(9)]))
    colours = [colour for colour, _ in found]
    assert len(set(colours[:7])) == 7 and colours[7:] == colours[:2]


def test_numbers_that_underlines_do_not_show_are_listed() -> None:
    several: list[Prediction] = [TextPrediction(2.5, 1200), WrittenPrediction("a < b", -0.25)]
    several += [ValuePrediction(1.2345), LabelPrediction("c", 0.123), RelationPrediction("r", ADA, OSLO, 0.7)]
    facts = [
        re.sub(r"<[^>]+>", "", fact) for fact in re.findall("<li>(.*?)</li>", predictions_to_html("x", several))
    ]
    assert facts == ["2.50 nats over 1,200 tokens", "a &lt; b -0.25", "1.23", "c 0.12", "Ada → r → Oslo 0.70"]


def test_more_lines_than_a_word_has_room_for_are_counted() -> None:
    html = predictions_to_html(TEXT, [span(0, end) for end in range(1, 15)])
    assert "and 8 more that overlap these" in html
    assert html.count("border-bottom") == sum(range(1, 7)), "the shortest six"


ends = st.tuples(st.integers(0, 30), st.integers(0, 30)).filter(lambda ends: ends[0] < ends[1])


@given(st.lists(ends, max_size=8))
def test_marks_that_share_a_character_have_lines_of_their_own(places: list[tuple[int, int]]) -> None:
    marks = [Mark(start, end, "x", 1.0) for start, end in places]
    found = lanes(marks)
    for i, (a, lane) in enumerate(zip(marks, found, strict=True)):
        for b, other in zip(marks[:i], found[:i], strict=True):
            assert lane != other or a.end <= b.start or b.end <= a.start
    text = "abcdefghij" * 3
    assert read(predictions_to_html(text, [span(start, end, "x", text) for start, end in places])).words == text
