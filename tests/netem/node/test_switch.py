"""A switch as a process: frames through real sockets, its spool, its counters, its rate."""

import pytest

from netem.impair.trim import dscp
from tests.netem.node.lab import corrupted, plan_of, play, successes

pytestmark = [pytest.mark.needs("netns"), pytest.mark.slow]

INCAST = """
name: incast
seed: 7
dilation: 200
topology:
  nodes: {h0: {}, h1: {}, h2: {}, s0: {kind: switch}}
  links:
    - {endpoints: ["h0:p0", "s0:e0"]}
    - {endpoints: ["h1:p0", "s0:e1"]}
    - {endpoints: ["h2:p0", "s0:e2"]}
transports: {rc: {kind: rc, mtu: 1024, timeout: 8}}
workload: [{pattern: incast, op: write, size: 64KiB, count: 2}]
defaults:
  link: {rate: 10gbit, delay: 1us, mtu: 4500}
  switch: {queue: {limit: 24KiB, trim: {size: 128B, dscp: 12}}}
"""


async def whole_run(lab):
    await lab.finish_work()
    return await lab.stop(), lab.spool("s0")


def test_a_switch_process_trims_and_its_books_are_right():
    reports, (records, end) = play(plan_of(INCAST), whole_run)
    assert successes(reports) == 4
    assert corrupted(reports) == 0
    c = reports["s0"].counters
    into = c["received"] + c["copies"] + c["originated"]
    assert into == c["sent"] + c["dropped"] + c["consumed"] + c["queued"]
    assert c["TrimPkts"] == c["TrimSent"] + c["TrimDrop"] > 0
    assert end is not None
    # The spool has every frame that left and every one that died, with what was done to it.
    cut = [record for record in records if record.comment.startswith("trimmed")]
    assert len(cut) == c["TrimSent"]
    assert {(len(record.frame), dscp(record.frame)) for record in cut} == {(128, 12)}
    assert sum(record.killed for record in records) == c["dropped"]
    assert sum(not record.killed for record in records) == c["sent"]
    frames = {direction.direction: direction.frames for direction in reports["s0"].directions}
    assert sum(frames.values()) == c["sent"]
    # What was sent arrived: no socket lost a frame.
    assert frames["s0:e0->h0:p0"] == c["e0.TxOk"]
    assert c["receive_drops"] == 0


def test_the_rate_of_a_port_can_be_changed_while_it_runs():
    """`impair set` reaches the switch, which serialises; the read-back says the new rate."""

    async def script(lab):
        s0 = lab.clients["s0"]
        reply = await s0.call("impair", on="s0:e0", set={"rate": 1_000_000_000})
        reports, _ = await whole_run(lab)
        return reply, reports

    one = INCAST.replace("{pattern: incast,", "{from: h1, to: h0,").replace("24KiB", "1MiB")
    reply, reports = play(plan_of(one), script)
    assert reply["impairment"]["rate"] == 1_000_000_000
    (flow,) = (flow for flow in reports["h1"].flows if flow.role == "requester")
    seconds = (flow.finished - flow.started) / 1e9
    assert 128 * 1024 * 8 / seconds < 1e9
