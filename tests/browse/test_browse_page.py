"""The pages of `ubert browse` in Chromium: layout and accessibility."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import browser
import pytest
from browsed import ATTACK, NEEDLE, write_store
from browser import CONTRAST, until
from served import serving

from pipelines.browse.routes import browser as pages
from pipelines.serving.app import create_app
from pipelines.serving.wire import Limits

ARTEFACTS = Path(__file__).parents[1] / "artefacts"
RECORDS = "document.querySelectorAll('article').length"
SHOWN = {
    "corpora": "",
    "records": "/corpora/wild",
    "rejects": "/corpora/wild/rejects?split=test",
    "evidence": "/evidence/duplicates?kind=near",
    "mixture": "/mixtures/both",
    "run": "/runs/first?other=second",
    "sql": "/sql",
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("browse") / "store"
    write_store(root)
    app = create_app(None, limits=Limits(), browser=pages(root, "127.0.0.1"))
    with serving(app) as address:
        yield f"{address}/browse"


def test_a_filter_is_in_the_address_and_back_undoes_it(tab: browser.Page, address: str) -> None:
    tab.visit(f"{address}/corpora/wild")
    until(tab, f"{RECORDS} === 6")
    tab.value("document.getElementById('text').focus()")
    tab.call("Input.insertText", text="ostrava")
    tab.call("Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", text="\r")
    until(tab, f"{RECORDS} === 1 && location.search.includes('text=ostrava')")
    link = tab.value("location.href")
    tab.value("history.back()")
    until(tab, f"{RECORDS} === 6")
    tab.value("history.forward()")
    until(tab, f"{RECORDS} === 1 && document.getElementById('text').value === 'ostrava'")
    tab.visit("about:blank")
    tab.visit(link)
    assert NEEDLE in tab.value("document.querySelector('.text').textContent")


def test_texts_stay_texts(tab: browser.Page, address: str) -> None:
    """The policy would stop a script, too, so the browser ignores it here."""
    tab.call("Page.enable")
    tab.call("Page.setBypassCSP", enabled=True)
    for path in SHOWN.values():
        tab.visit(f"{address}{path}")
        assert tab.value("document.title") != "taken"
        assert tab.value("document.querySelectorAll('script, main img, main i, main b').length") == 0
    tab.visit(f"{address}/corpora/wild/rejects")
    assert ATTACK in tab.value("document.querySelector('main').textContent")
    tab.call("Page.setBypassCSP", enabled=False)


def test_marks_are_coloured_and_curves_have_size(tab: browser.Page, address: str) -> None:
    """The policy forbids styles in pages: what they need is in the style sheets."""
    tab.visit(f"{address}/corpora/wild")
    colours = tab.value(
        "[...document.querySelectorAll('mark')].map(mark => getComputedStyle(mark).borderBottomColor)"
    )
    assert len(set(colours)) >= 3
    tab.visit(f"{address}/runs/first?other=second")
    assert tab.value("document.querySelector('polyline').getBoundingClientRect().width") > 200
    assert tab.value("getComputedStyle(document.querySelector('polyline')).fill") == "none"
    tab.visit(f"{address}/mixtures/both")
    assert tab.value("document.querySelector('.bar-of rect').getBoundingClientRect().width") > 50


@pytest.mark.parametrize("path", SHOWN.values(), ids=SHOWN)
def test_a_screen_reader_finds_names(tab: browser.Page, address: str, path: str) -> None:
    tab.visit(f"{address}{path}")
    named = {
        "textbox",
        "searchbox",
        "combobox",
        "button",
        "spinbutton",
        "link",
        "region",
        "form",
        "search",
        "image",
    }
    for node in tab.call("Accessibility.getFullAXTree")["nodes"]:
        if not node["ignored"] and node["role"]["value"] in named:
            assert node["name"]["value"], node
    assert tab.value("[...document.querySelectorAll('.scroll, pre')].filter(e => e.tabIndex < 0).length") == 0
    assert tab.value("document.querySelectorAll('nav [aria-current=page]').length") >= 1


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [("phone", 390, "dark"), pytest.param("wide", 1280, "light", marks=pytest.mark.slow)],
)
def test_pictures_are_kept_and_words_can_be_read(
    tab: browser.Page, address: str, name: str, width: int, scheme: str
) -> None:
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    tab.call("Emulation.setEmulatedMedia", media="screen", features=features)
    tab.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    tab.requests.clear()
    tab.complaints.clear()
    for kind, path in SHOWN.items():
        tab.visit(f"{address}{path}")
        assert tab.value("document.documentElement.scrollWidth") <= width, f"{kind} scrolls sideways"
        assert json.loads(tab.value(f"JSON.stringify({CONTRAST.strip()})")) == [], kind
        tab.picture(ARTEFACTS / f"browse-{kind}-{name}-{scheme}.png", width=width)
    assert tab.requests and all(url.startswith(address.removesuffix("/browse")) for url in tab.requests)
    assert not tab.complaints
