"""The registry of clauses: whole, well formed, and the list that it stands for."""

import ast
import fnmatch
import re
from functools import cache
from pathlib import Path

import pytest

from netem.conform.clauses import FAMILIES, _read, clause, clauses, matching
from netem.conform.suite import built_in
from tests.interop.roce.runs import ROLES, chosen

ROOT = Path(__file__).parents[3]
LIST = ROOT.parent / "shared" / "specs" / "conformance-rocev2.md"
TESTS = [(each.id, test) for each in clauses().values() for test in each.tests]


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


@pytest.mark.parametrize("family", ["roce", "cm"])
def test_every_clause_has_cases_or_tests(family):
    proved = {name for case in built_in() for name in case.clauses}
    assert [each.id for each in matching(f"{family}/*") if each.id not in proved] == [
        each.id for each in matching(f"{family}/*") if each.tests
    ]


@pytest.mark.parametrize(("name", "test"), TESTS, ids=[" ".join(pair) for pair in TESTS])
def test_a_test_that_is_named_exists(name, test):
    path, function, _, runs = re.fullmatch(r"([^:]+)::(\w+)(\[(.+)\])?", test).groups()
    tree = ast.parse((ROOT / path).read_text())
    assert function in {each.name for each in tree.body if isinstance(each, FUNCTIONS)}
    if runs is not None:
        found = [run for run in in_ci() if fnmatch.fnmatchcase(str(run), runs)]
        assert found
        text = clause(name).text
        if "both roles" in text or "client and server" in text:
            assert {run.role for run in found} == set(ROLES)


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
in_ci = cache(chosen)


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        (["| id | strength | role | section | clause |", "| R1 | MUST | both |"], "3 cells"),
        (["| proved | by |", "| R1 | a.py::b |"], "R1 is no clause above"),
    ],
)
def test_a_table_that_is_none_is_named_with_its_line(lines, what):
    with pytest.raises(ValueError, match=rf"registry/roce.md, line 2: {what}"):
        list(_read("roce", lines))
