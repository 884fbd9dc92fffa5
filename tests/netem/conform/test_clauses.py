"""The registry of clauses: whole, well formed, and the list that it stands for."""

import re
from pathlib import Path

import pytest

from netem.conform.clauses import FAMILIES, clause, clauses, matching

LIST = Path(__file__).parents[4] / "shared" / "specs" / "conformance-rocev2.md"


def test_every_family_has_clauses_and_every_clause_a_family():
    assert {each.family for each in clauses().values()} == set(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_clause_is_one_sentence_with_its_source(family):
    for each in matching(f"{family}/*"):
        assert re.fullmatch(rf"{family}/[A-Z]\d+", each.id)
        assert each.text.endswith("."), each
        assert len(each.text) < 120, each
        assert each.section, each
        assert each.role, each


def test_an_unknown_clause_is_named():
    with pytest.raises(KeyError, match="roce/R99 is no clause"):
        clause("roce/R99")


@pytest.mark.skipif(not LIST.exists(), reason="the list is not beside the checkout")
def test_every_row_of_the_list_is_a_clause():
    rows = set(re.findall(r"^\| ([A-Z]\d+) \|", LIST.read_text(), re.MULTILINE))
    known = {each.id.partition("/")[2] for each in [*matching("roce/*"), *matching("cm/*")]}
    assert known == rows
