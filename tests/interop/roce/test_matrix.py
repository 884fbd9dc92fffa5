"""The kernel's Soft-RoCE, unmodified, accepts what we send, and we accept what it sends.

Each run: every message complete and right on our side, the tool content on its own, nothing
sent again by us, nothing refused. `runs.py` says which runs there are.
"""

import pytest

from tests.interop.roce.cable import Cable
from tests.interop.roce.play import module_of
from tests.interop.roce.runs import chosen, product

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


@pytest.mark.parametrize("run", RUNS)
async def test_a_tool_of_the_kernel_works_with_us(cable, table, run):
    ours = module_of(run)
    table.note(run, passes=False)
    async with cable.device(seed=1) as device:
        end = ours.player(device, run)
        await end.against(cable, ours.argv(cable, run), ours.PORT)
        assert end.verdict() == []
    table.note(run, passes=True)
