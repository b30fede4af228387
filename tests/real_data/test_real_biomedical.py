"""Real datasets of entities in columns, from biomedicine to encyclopedias."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import pytest
from test_real_datasets import folder_of, ingested, records_of

from pipelines.specs import dataset_spec, specs_folder

# For each file the tags that begin with B-, and those that begin with I- after O or another label, as counted with
# awk. Files whose sentences are all kept.
BEGUN = {
    "anatem": [(6946, 0), (2139, 0), (4616, 0)],
    "anem": [(1879, 0), (1256, 0)],
    "bc2gm": [(15197, 0), (3061, 0), (6325, 0)],
    "bionlp09_ner": [(9296, 0), (2078, 0), (3589, 0)],
    "bionlp11epi_ner": [(7586, 0), (2495, 0), (5730, 0)],
    "bionlp11id_ner": [(5674, 0), (1598, 0), (3810, 0)],
    "bionlp13pc_ner": [(7853, 0), (2734, 0), (5306, 0)],
    "craft_ner": [(29026, 0), (9727, 0), (18881, 0)],
    "cyner": [(2893, 238), (745, 39), (892, 44)],
    "ex_ptm": [(1787, 0), (603, 0), (2308, 0)],
    "jnlpba": [(4551, 0), (8662, 0)],
    "linnaeus": [(2119, 0), (711, 0), (1433, 0)],
    "re3d": [(2718, 0), (676, 0)],
    "skillspan": [(1765, 0), (812, 0), (979, 0), (3425, 0), (1351, 0), (1285, 1)],
    "stackoverflow_ner": [(13453, 7), (4334, 3), (4653, 1), (5809, 5)],
    "stackoverflow_ner_code": [(4110, 0), (1191, 0), (1434, 0), (1484, 0)],
    "wikineural_en": [(19182, 439), (19116, 559)],
}

# Mentions of each category in the whole dataset.
CATEGORIES = {
    "anem": {
        "anatomical system": 51,
        "cell": 776,
        "cellular component": 199,
        "developing anatomical structure": 39,
        "immaterial anatomical entity": 60,
        "multi-tissue structure": 639,
        "organ": 381,
        "organism subdivision": 162,
        "organism substance": 291,
        "pathological formation": 368,
        "tissue": 169,
    },
    "bionlp11id_ner": {"chemical": 973, "organism": 3471, "protein": 6551, "regulon or operon": 87},
    "bionlp13pc_ner": {
        "cellular component": 1013,
        "gene or gene product": 10891,
        "molecular complex": 1502,
        "simple chemical": 2487,
    },
    "craft_ner": {
        "biological sequence feature": 18974,
        "cell type": 5495,
        "cellular component": 4180,
        "chemical": 6053,
        "gene or gene product": 16064,
        "organism": 6868,
    },
    "jnlpba": {"DNA": 2108, "RNA": 225, "cell line": 900, "cell type": 2447, "protein": 7533},
    "re3d": {
        "date or time": 223,
        "document": 58,
        "location": 799,
        "military vehicle, ship or aircraft": 63,
        "money": 24,
        "nationality": 44,
        "organisation": 1388,
        "person": 517,
        "quantity": 180,
        "weapon": 98,
    },
    "skillspan": {"area of knowledge": 5236, "skill": 4382},  # one of them begins with I-
    "stackoverflow_ner_code": {"code": 8016, "keyboard input": 15, "program output": 188},
}

# Lines that hold a token.
TOKENS = {
    "anatem": [153823, 58785, 99976],
    "anem": [71697, 45939],
    "jnlpba": [47461, 101039],
    "stackoverflow_ner": [164804, 51876, 55236, 78336],
    "wikineural_en": [267839, 267155],
}


def mentions(name: str) -> Counter[tuple[str, str]]:
    """How often which words are a mention of which category."""
    return Counter(
        (record.text[span.start : span.end], record.categories[span.category or 0].name)
        for record in records_of(name)
        for span in record.spans
    )


@pytest.mark.parametrize("name", BEGUN)
def test_every_tag_that_begins_a_mention_is_one(name: str) -> None:
    assert [taken.spans for taken in ingested(name).values()] == [sum(begun) for begun in BEGUN[name]]


@pytest.mark.parametrize("name", CATEGORIES)
def test_categories_of_mentions(name: str) -> None:
    counts: Counter[str] = Counter()
    for (_, category), count in mentions(name).items():
        counts[category] += count
    assert counts == CATEGORIES[name]


@pytest.mark.parametrize("name", TOKENS)
def test_tokens_of_each_file(name: str) -> None:
    """A text is its tokens joined by a space, and no token of these files holds one."""
    found = [sum(record.text.count(" ") + 1 for record in taken.records) for taken in ingested(name).values()]
    assert found == TOKENS[name]


@pytest.mark.parametrize(
    ("name", "words", "category"),
    [
        ("anem", "Langerhans cells", "cell"),
        ("bc2gm", "chimeric bZIP protein", "gene or protein"),
        ("bionlp11id_ner", "Salmonella enterica Serovar Typhimurium", "organism"),
        ("bionlp13pc_ner", "mTORC2", "molecular complex"),
        ("craft_ner", "alternatively spliced transcript", "biological sequence feature"),
        ("cyner", "Riltok", "malware"),
        ("jnlpba", "fusion complementary DNA", "DNA"),
        ("linnaeus", "Solanum tuberosum", "species"),
        ("matscholar_ner", "BET surface area", "property of a material"),
        ("pico_sections", "patients with vascular dementia or Alzheimer ' s disease with cerebrovascular disease",
         "participants"),
        ("re3d", "Tobias Ellwood", "person"),
        ("skillspan", "machine learning", "area of knowledge"),
        ("stackoverflow_ner", "CODE_BLOCK : Q_30 ( code omitted for annotation )", "code"),
        ("wikineural_en", "Tuvalu", "location"),
    ],
)  # fmt: skip
def test_a_mention_is_where_its_words_are(name: str, words: str, category: str) -> None:
    assert (words, category) in mentions(name)


def begun(sentence: str) -> int:
    """How many lines have a tag that begins with B-, or with I- after O or another label."""
    tags = ["O", *(line.split()[-1] for line in sentence.split("\n"))]
    return sum(tag.startswith("B-") or (tag != "O" and before[2:] != tag[2:]) for before, tag in pairwise(tags))


@pytest.mark.parametrize(
    ("name", "line"), [("pico_sections", r"[^\t\n]+\t[^\t\n]+"), ("matscholar_ner", r"[^ \n]+ +[^ \n]+")]
)
def test_mentions_of_the_sentences_that_are_not_refused(name: str, line: str) -> None:
    """Those in which each line has a token and a tag."""
    for (_, path), taken in ingested(name).items():
        text = (folder_of(name) / path).read_text(encoding="utf-8").strip()
        sentences = [part for part in re.split(r"\n\n+", text) if not part.startswith("-DOCSTART-")]
        whole = [part for part in sentences if re.fullmatch(rf"{line}(\n{line})*", part)]
        assert (len(taken.records), len(taken.rejects)) == (len(whole), len(sentences) - len(whole))
        assert taken.spans == sum(map(begun, whole))


def test_levels_of_skills_overlap() -> None:
    spans = [sorted((span.start, span.end) for span in record.spans) for record in records_of("skillspan")]
    assert any(first[1] > second[0] for found in spans for first, second in pairwise(found))


@pytest.mark.parametrize(
    ("name", "twin", "shared"),
    [
        ("anem", "anatem", 0.9),
        ("jnlpba", "genia_nested", 0.3),
        ("jnlpba", "bionlp09_ner", 0.2),
        ("bionlp09_ner", "genia_nested", 0.1),
    ],
)
def test_twins_have_the_same_texts(name: str, twin: str, shared: float) -> None:
    """The share of sentences that are in the twin, too, whatever the tokens are."""
    texts, others = ({"".join(record.text.casefold().split()) for record in records_of(of)} for of in (name, twin))
    assert len(texts & others) > shared * len(texts)
    assert twin in dataset_spec(name, specs_folder(None)).twins
