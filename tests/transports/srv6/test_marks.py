"""RFC 6040, figure 4, cell by cell."""

import pytest

from transports.srv6.marks import Marks, combined_ecn, decapsulated_class

NOT, ECT1, ECT0, CE = range(4)
DROP = None

# Rows: inner. Columns: outer Not-ECT, ECT(0), ECT(1), CE.
FIGURE_4 = {
    NOT: (NOT, NOT, NOT, DROP),
    ECT0: (ECT0, ECT0, ECT1, CE),
    ECT1: (ECT1, ECT1, ECT1, CE),
    CE: (CE, CE, CE, CE),
}


@pytest.mark.parametrize("inner", FIGURE_4)
def test_ecn_of_both_headers(inner):
    row = tuple(combined_ecn(inner, outer) for outer in (NOT, ECT0, ECT1, CE))
    assert row == FIGURE_4[inner]


@pytest.mark.parametrize(
    ("marks", "dscp"), [(Marks.PIPE, 0x20), (Marks.UNIFORM, 0xB8), (Marks.INNER, 0x20)]
)
@pytest.mark.parametrize("inner", FIGURE_4)
@pytest.mark.parametrize("outer", FIGURE_4)
def test_dscp_and_ecn_are_told_apart(marks, dscp, inner, outer):
    ecn = inner if marks is Marks.INNER else combined_ecn(inner, outer)
    expected = None if ecn is None else dscp | ecn
    assert decapsulated_class(0x20 | inner, 0xB8 | outer, marks) == expected
