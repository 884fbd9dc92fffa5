"""The kernel's Soft-RoCE, unmodified, accepts what we send, and we accept what it sends.

Each run: every message complete and right on our side, the tool content on its own, nothing
sent again by us, nothing refused. `runs.py` says which runs there are.
"""

from pathlib import Path

import pytest

from tests.interop.roce import examples, perftest
from tests.interop.roce.cable import Cable
from tests.interop.roce.runs import aims, chosen, product

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.needs("netns", "tap", "qemu_guest"),
]

CHOSEN = chosen()
RUNS = [
    pytest.param(run, id=str(run), marks=() if run in CHOSEN else pytest.mark.full)
    for run in product()
]


@pytest.fixture(scope="module")
def cable():
    with Cable() as cable:
        yield cable


@pytest.fixture(scope="module")
def table():
    """Hold what was run and how it ended."""
    return {}


@pytest.mark.parametrize("run", RUNS)
async def test_a_tool_of_the_kernel_works_with_us(cable, table, run, request):
    ours = examples if run.tool.startswith("ibv_") else perftest
    path = request.config.getoption("--interop-table")
    table[run] = "fails"
    try:
        async with cable.device(seed=1) as device:
            end = ours.player(device, run)
            await end.against(cable, ours.argv(cable, run), ours.PORT)
            assert end.verdict() == []
        table[run] = "passes"
    finally:
        note(path, table)


def test_what_is_chosen_has_everything_and_is_not_much():
    """Every aim of the product is an aim of a chosen run; CI has eight minutes for them."""
    assert set().union(*map(aims, CHOSEN)) == set().union(*map(aims, product()))
    assert len(CHOSEN) <= 60


def note(path, rows) -> None:
    """Write the table down, where the command line asks for it."""
    if path:
        Path(path).write_text(written(rows))


def written(rows) -> str:
    """Return the table: a row for each tool, service and exchange, a count for each role."""
    passed = sum(end == "passes" for end in rows.values())
    lines = [
        "# What the kernel's Soft-RoCE made of us",
        "",
        f"`make interop-full`: {len(rows)} of {len(RUNS)} runs done, {passed} pass.",
        "In the columns of our roles: passed of those done.",
        "",
        "| tool | service | sizes | path MTUs | QPs | exchange | families | client | server |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    groups = {}
    for run, end in rows.items():
        key = run.tool, run.service.name, run.kind, run.exchange
        groups.setdefault(key, {})[run] = end
    for (tool, service, kind, exchange), group in groups.items():
        cells = [f"{tool} {kind}".strip(), service]
        cells += [_values(group, name) for name in ("size", "path_mtu", "qps")]
        cells += [exchange, _values(group, "family")]
        for role in ("client", "server"):
            ends = [end for run, end in group.items() if run.role == role]
            cells.append(f"{ends.count('passes')} of {len(ends)}")
        lines.append(f"| {' | '.join(cells)} |")
    failed = [f"* {run}" for run, end in rows.items() if end != "passes"]
    return "\n".join([*lines, *(["", "Failed:", "", *failed] if failed else []), ""])


def _values(group, name) -> str:
    return ", ".join(map(str, sorted({getattr(run, name) for run in group})))
