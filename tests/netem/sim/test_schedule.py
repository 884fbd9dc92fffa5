"""Schedules in virtual time: links that go down, ports that hold, nodes that die."""

import pytest

from transports.clock import MS, US
from wire.roce.packet import RocePacket, locate

# 1 MiB at 10 Gbit/s takes 900 us.
WRITE = """
transports: {rc: {timeout: 8, retry: 7}}
workload: [{op: write, from: h0, to: h1, size: 64KiB, count: 16}]
"""
LONG = WRITE.replace("count: 16", "count: 160")


def sent(run, port, start, stop):
    """Return what a port sent in a span of time, dead frames left out."""
    return [r for r in run.records if r.port == port and start <= r.at < stop and not r.killed]


def fault(run, index=0):
    found = run.judged.faults[index]
    return found.fired, found.wanted, found.touched


def events(run, name):
    return [(e.at, e.node, e.fields) for e in run.outcome.events if e.event == name]


def test_a_link_is_down_both_ways_for_its_time_and_the_transfer_goes_on(simulate):
    """I02, W09: the outage, and bytes that flow again after it."""
    run = simulate(WRITE + "faults: [{at: 200us, on: h0--h1, down: 300us}]")
    assert run.verdict == ("pass", "")
    for port in ("h0:p0", "h1:p0"):
        assert not sent(run, port, 200 * US, 500 * US)
        assert sent(run, port, 500 * US, 1 << 60)
    fired, wanted, touched = fault(run)
    assert (fired, wanted) == (1, 1)
    assert touched == len(run.lost) > 0
    assert all(
        record.comment.startswith("dropped by link down (fault 0)") for record in run.lost
    )
    assert run.flow.timeouts > 0
    assert [at for at, _, _ in events(run, "link_down")] == [200 * US] * 2
    assert [at for at, _, _ in events(run, "link_up")] == [500 * US] * 2


def test_one_way_down_is_silent_and_spares_the_other_way(simulate):
    """I02: a gap in one direction only."""
    run = simulate(WRITE + "faults: [{at: 200us, on: h1->h0, down: 300us}]")
    assert run.verdict == ("pass", "")
    assert {record.port for record in run.lost} == {"h1:p0"}
    assert not sent(run, "h1:p0", 200 * US, 500 * US)
    assert sent(run, "h0:p0", 200 * US, 500 * US)


def test_a_flap_counts_each_time(simulate):
    flap = "faults: [{at: 100us, on: h0--h1, flap: {down: 50us, up: 3ms, count: 3}}]"
    run = simulate(LONG + flap)
    assert run.verdict == ("pass", "")
    assert fault(run)[:2] == (3, 3)
    downs = sorted({record.at // (3050 * US) for record in run.lost})
    assert downs == [0, 1, 2]


def test_an_outage_after_the_end_is_inconclusive(simulate):
    run = simulate(WRITE + "faults: [{at: 10s, on: h0--h1, down: 300us}]")
    assert run.judged.verdict == "inconclusive"
    assert run.judged.why.endswith("never fired")


def test_an_outage_in_silence_that_meets_no_frame_is_inconclusive(simulate):
    """M13, for a link that is down."""
    text = WRITE.replace("}]", "}, {op: write, from: h0, to: h1, size: 1KiB, at: 50ms}]")
    run = simulate(text + "faults: [{at: 20ms, on: h0->h1, down: 1ms}]")
    assert run.judged.verdict == "inconclusive"
    assert run.judged.why == "fault 0 (down h0:p0 at 20ms for 1ms) touched no frame"


def test_down_for_good_ends_in_the_error_that_the_standard_has(simulate):
    text = WRITE.replace("count: 16", "count: 16, expect_status: RETRY_EXC_ERR")
    run = simulate(text + "faults: [{at: 200us, on: h0--h1, down: true}]")
    assert run.verdict == ("pass", "")
    assert "RETRY_EXC_ERR" in run.flow.statuses


def test_an_up_ends_what_is_down_for_good(simulate):
    both = "[{at: 200us, on: h0--h1, down: true}, {at: 500us, on: h0--h1, up: true}]"
    run = simulate(WRITE + f"faults: {both}")
    assert run.verdict == ("pass", "")
    assert [fault(run, n)[:2] for n in (0, 1)] == [(1, 1), (1, 1)]


def test_a_hold_lets_nothing_out_and_loses_nothing(simulate):
    text = WRITE.replace("timeout: 8", "timeout: 14")
    run = simulate(text + "faults: [{at: 200us, on: h0->h1, hold: 300us}]")
    assert run.verdict == ("pass", "")
    assert run.lost == []
    assert not sent(run, "h0:p0", 200 * US, 500 * US)
    held = [r for r in run.records if "by hold (fault 0)" in r.comment]
    assert fault(run) == (1, 1, fault(run)[2])
    assert fault(run)[2] >= len(held) > 0
    psns = [psn(r) for r in run.records if r.port == "h0:p0"]
    assert psns == sorted(psns), "their order is kept"


def psn(record):
    place = locate(record.frame)
    return RocePacket.unpack(record.frame[place.bth_offset : place.icrc_offset]).bth.psn


def test_a_change_for_a_time_comes_and_goes(simulate):
    change = "faults: [{at: 200us, on: h0->h1, set: {delay: 1ms}, for: 300us}]"
    run = simulate(LONG + change)
    assert run.verdict == ("pass", "")
    assert [at for at, _, _ in events(run, "impaired")] == [200 * US, 500 * US]


@pytest.mark.parametrize("op", ["mark", "trim", "drop"])
def test_the_next_two_that_match_are_touched_and_no_more(simulate, op):
    """I09: the first two of a kind, and the third passes."""
    how = ", trim: {size: 128B}" if op == "trim" else ""
    one = f"faults: [{{do: {op}, on: h0:p0, where: {{op: WRITE_LAST}}, count: 2{how}}}]"
    run = simulate(WRITE + one)
    word = {"drop": "dropped", "mark": "marked", "trim": "trimmed"}[op]
    assert sum(r.comment.startswith(word) for r in run.records) == 2
    assert fault(run) == (2, 2, None)


# -- nodes that die ----------------------------------------------------------------------------


def test_a_killed_responder_is_a_dead_link_to_its_peer(simulate):
    text = WRITE.replace("count: 16", "count: 16, expect_status: RETRY_EXC_ERR")
    run = simulate(text + "faults: [{at: 200us, on: h1, kill: true}]")
    assert run.verdict == ("pass", "")
    assert fault(run) == (1, 1, None)
    assert not sent(run, "h1:p0", 200 * US, 1 << 60)
    assert not sent(run, "h0:p0", 200 * US, 1 << 60)
    assert all(r.comment.startswith("dropped by link down (h1 killed)") for r in run.lost)
    assert events(run, "killed") == [(200 * US, "h1", {"why": "fault 0"})]


def test_a_responder_that_begins_anew_remembers_nothing(simulate):
    """Its queue pair is at its first PSN again: what comes is ahead of it."""
    text = WRITE.replace("count: 16", "count: 16, expect_status: RETRY_EXC_ERR")
    run = simulate(text + "faults: [{at: 200us, on: h1, kill: 300us}]")
    assert run.verdict == ("pass", "")
    assert run.flow.statuses["SUCCESS"] < 16
    naks = sent(run, "h1:p0", 500 * US, 1 << 60)
    assert naks, "it answers again"
    assert events(run, "restarted") == [(500 * US, "h1", {"why": "fault 0"})]


def test_a_requester_that_begins_anew_is_behind_its_peer(simulate):
    """It begins at its first PSN; what it is answered is about PSNs that it has not sent."""
    text = WRITE.replace("count: 16", "count: 16, expect_status: RETRY_EXC_ERR")
    run = simulate(text + "faults: [{at: 200us, on: h0, kill: 300us}]")
    first = psn(run.records[0])
    assert psn(sent(run, "h0:p0", 500 * US, 1 << 60)[0]) == first
    assert run.verdict == ("pass", "")


def test_two_ends_that_begin_anew_do_all_from_the_beginning(simulate):
    both = ", ".join(f"{{at: 200us, on: {node}, kill: 300us}}" for node in ("h0", "h1"))
    run = simulate(WRITE + f"faults: [{both}]")
    assert run.verdict == ("pass", "")
    assert run.flow.completed == 16
    assert run.flow.corrupt_messages == 0


def test_work_that_waits_for_a_dead_node_goes_on(simulate):
    """Nobody waits for what a node that is gone for good was to request."""
    text = """
topology:
  nodes: {h0: {}, h1: {}, h2: {}, b0: {kind: bridge}}
  links:
    - {endpoints: ["h0:p0", "b0:e0"], rate: 10gbit}
    - {endpoints: ["h1:p0", "b0:e1"]}
    - {endpoints: ["h2:p0", "b0:e2"]}
transports: {rc: {timeout: 8}}
workload:
  - {op: write, from: h0, to: h1, size: 64KiB, count: 100}
  - {op: write, from: h2, to: h1, size: 1KiB, after: 0}
faults: [{at: 200us, on: h0, kill: true}]
"""
    run = simulate(text)
    assert run.verdict == ("pass", "")
    done = {flow.flow: flow.completed for flow in run.judged.flows}
    assert done["1/h2->h1/0"] == 1
    assert done["0/h0->h1/0"] < 100
    assert run.outcome.duration < 10 * MS


def test_a_restart_of_a_living_node_is_a_death_and_a_birth(simulate):
    text = WRITE.replace("count: 16", "count: 16, expect_status: RETRY_EXC_ERR")
    run = simulate(text + "faults: [{at: 200us, on: h0, restart: true}]")
    assert run.verdict == ("pass", "")
    assert fault(run) == (1, 1, None)
    assert [len(events(run, name)) for name in ("killed", "restarted")] == [1, 1]


def test_the_same_twice_also_with_deaths(simulate):
    """I10."""
    text = (
        WRITE
        + """
faults:
  - {at: 100us, on: h0--h1, flap: {down: 20us, up: 50us, count: 3}}
  - {at: 350us, on: h1->h0, hold: 40us}
  - {at: 400us, on: h0, kill: 100us}
"""
    )
    one, two = simulate(text), simulate(text)
    assert one.records == two.records
    assert one.outcome.events == two.outcome.events
    assert one.verdict == two.verdict
