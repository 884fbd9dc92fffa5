"""Findings cite clauses that there are."""

import re
from pathlib import Path

from netem.analysis import check
from netem.conform.clauses import FAMILIES, clauses

CITED = re.compile(rf'"((?:{"|".join(FAMILIES)})/[^"]*)"')


def test_every_clause_that_is_cited_is_registered():
    cited = {
        clause
        for path in Path(check.__file__).parent.glob("*.py")
        for clause in CITED.findall(path.read_text())
    }
    assert len(cited) > 25
    assert cited - clauses().keys() == set()
