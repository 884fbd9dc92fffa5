"""The kernel's tools over links that lose, duplicate and reorder: all complete, data right.

Labs: the guest's tools on one side, our end of each on the other, our impairment between them
each way. What sets a connection up is impaired like all else: TCP, and the messages of rdma_cm.
`runs.py` says which runs there are, and why only some of UC and UD.
"""

import re
from pathlib import Path

import pytest

from netem.guest.image import image
from tests.interop.roce import examples, librdmacm
from tests.interop.roce.play import module_of
from tests.interop.roce.runs import (
    DUPLICATES,
    LOSES,
    REORDERS,
    chosen_impaired,
    impaired,
)
from tests.labs.commands import fabriclab, result

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.needs("netns", "bridge", "tap", "qemu_guest"),
]

ROOT = Path(__file__).parents[3]
OURS = {4: "198.18.0.1", 6: "fd00::1"}
GUEST = {4: "198.18.0.2", 6: "fd00::2"}
GIDS = {6: "1", 4: "2"}  # behind the link-local one, in the order of adding
IMPAIRMENTS = {  # and the counter that tells
    LOSES: ("loss: 1%", "lost"),
    DUPLICATES: ("duplicate: 2%", "duplicated"),
    REORDERS: ("delay: 2ms, reorder: 5%, gap: 3", "reordered"),
}
IN_ONE_LAB = 24
LAB = """
name: impaired-peer
limit: {limit}s
topology:
  nodes:
    h0:
      command: {ours}
    g0:
      kind: guest
      command: |
        set -e
        ip address add {guest4}/24 dev p0
        sleep 1
{theirs}
  links:
    - {{endpoints: ["h0:p0", "g0:p0"], mtu: 4200, {impairment}}}
capture: {{links: none}}
"""
# A client comes too early until we listen for it.
AGAIN = "n=0; until {}; do n=$((n+1)); [ $n -lt 40 ]; sleep 0.5; done"
CHOSEN = chosen_impaired()


def labs():
    """Yield the runs of each lab: one for each impairment for CI, then all the others."""
    for how in IMPAIRMENTS:
        runs = [one.run for one in CHOSEN if one.how == how]
        yield pytest.param(how, runs, id=f"{how}-chosen")
    for how in IMPAIRMENTS:
        rest = [one.run for one in impaired() if one.how == how and one not in CHOSEN]
        for number in range(0, len(rest), IN_ONE_LAB):
            runs = rest[number : number + IN_ONE_LAB]
            yield pytest.param(how, runs, id=f"{how}-{number}", marks=pytest.mark.full)


def words(run):
    """Return the command of the guest that plays the other end of a run."""
    module = module_of(run)
    if module is librdmacm:
        argv = module.words(run, GUEST[run.family], OURS[run.family])
    else:
        # perftest's own exchange is over IPv4, and so is what it resolves for rdma_cm.
        server = OURS[run.family if module is examples else 4]
        argv = module.words(run, GIDS[run.family], server, timeout=15)
    command = " ".join(argv)
    return AGAIN.format(command) if run.role == "server" else command


@pytest.mark.parametrize(("how", "runs"), [*labs()])
def test_every_tool_gets_through(tmp_path, table, how, runs):
    image()
    impairment, counter = IMPAIRMENTS[how]
    limit = 60 + 15 * len(runs)
    text = LAB.format(
        ours=f"cd {ROOT} && python -m tests.interop.roce.play {OURS[4]},{OURS[6]}"
        f" {GUEST[4]},{GUEST[6]} {how} {' '.join(map(str, runs))}",
        theirs="\n".join(f"        {words(run)}" for run in runs),
        guest4=GUEST[4],
        impairment=impairment,
        limit=limit,
    )
    (tmp_path / "lab.yaml").write_text(text)
    ran = fabriclab(
        "run",
        tmp_path / "lab.yaml",
        "--out",
        tmp_path / "run",
        cwd=tmp_path,
        limit_s=limit + 60,
    )
    ours, theirs = ((tmp_path / f"run/nodes/{n}.out").read_text() for n in ("h0", "g0"))
    back = dict(re.findall(r"^(\S+): 0 wrong, (\d+) times back$", ours, re.MULTILINE))
    table.note_impaired(how, {run: str(run) in back for run in runs})
    assert ran.returncode == 0, ran.stdout + ran.stderr + ours + theirs
    assert len(back) == len(runs)
    for link in result(tmp_path / "run")["links"]:
        assert link[counter] > 3
    if how == LOSES:
        assert sum(map(int, back.values())) > 0
