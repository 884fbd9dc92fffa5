"""The tools of RC over links that lose, duplicate and reorder: all complete, data right.

A lab: the guest's tools on one side, our end of each on the other, our impairment between them
each way. Over TCP the exchange is impaired like all else.
"""

from pathlib import Path

import pytest

from netem.guest.image import image
from tests.interop.roce import examples, perftest
from tests.interop.roce.runs import RC, Run
from tests.labs.commands import fabriclab, result

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.needs("netns", "bridge", "tap", "qemu_guest"),
]

ROOT = Path(__file__).parents[3]
ADDRESSES = {4: ("198.18.0.1", "198.18.0.2"), 6: ("fd00::1", "fd00::2")}
IMPAIRED = {
    "loses": "loss: 1%",
    "duplicates": "duplicate: 2%",
    "reorders": "delay: 2ms, reorder: 5%, gap: 3",
}
LAB = """
name: impaired-peer
limit: 100s
defaults:
  host: {{family: ipv{family}}}
topology:
  nodes:
    h0:
      command: {ours}
    g0:
      kind: guest
      command: |
        set -e
{theirs}
  links:
    - {{endpoints: ["h0:p0", "g0:p0"], mtu: 4200, {impairment}}}
capture: {{links: none}}
"""


def runs(family):
    """Yield a run of each tool of RC, roles in turn."""
    tools = [
        ("ibv_rc_pingpong", 4096, ""), ("ibv_srq_pingpong", 4096, ""),
        ("ib_write_bw", 65_537, ""), ("ib_read_bw", 65_537, ""), ("ib_send_bw", 65_537, ""),
        ("ib_atomic_bw", 8, "FETCH_AND_ADD"), ("ib_write_lat", 4095, ""),
        ("ib_read_lat", 4095, ""), ("ib_send_lat", 4095, ""),
        ("ib_atomic_lat", 8, "CMP_AND_SWAP"),
    ]  # fmt: skip
    for number, (tool, size, kind) in enumerate(tools):
        if family == 6 and tool.startswith("ib_"):
            return  # perftest's exchange is over IPv4, which this lab's hosts do not have
        role = ("client", "server")[number % 2]
        yield Run(tool, role, family, size, 1024, "tcp", RC, 1, kind)


@pytest.mark.parametrize(("family", "how"), [(4, "loses"), (4, "reorders"), (6, "duplicates")])
def test_every_tool_of_rc_gets_through(tmp_path, family, how):
    image()
    own, peer = ADDRESSES[family]
    plan = list(runs(family))
    theirs = []
    for run in plan:
        module = examples if run.tool.startswith("ibv_") else perftest
        words = " ".join(module.words(run, gid="1", server=own, timeout=15))
        # A client comes too early until we listen for it.
        theirs.append(f"until {words}; do sleep 1; done" if run.role == "server" else words)
    names = " ".join(map(str, plan))
    text = LAB.format(
        family=family,
        ours=f"cd {ROOT} && python -m tests.interop.roce.play {own} {peer} {names}",
        theirs="\n".join(f"        {line}" for line in theirs),
        impairment=IMPAIRED[how],
    )
    (tmp_path / "lab.yaml").write_text(text)
    ran = fabriclab(
        "run", tmp_path / "lab.yaml", "--out", tmp_path / "run", cwd=tmp_path, limit_s=400
    )
    told = "\n".join((tmp_path / "run/nodes" / f"{n}.out").read_text() for n in ("h0", "g0"))
    assert ran.returncode == 0, ran.stdout + ran.stderr + told
    assert told.count(": 0 wrong, ") == len(plan)
    for link in result(tmp_path / "run")["links"]:
        touched = {"loses": "lost", "duplicates": "duplicated", "reorders": "reordered"}[how]
        assert link[touched] > 3
