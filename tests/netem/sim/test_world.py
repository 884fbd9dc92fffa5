"""Whole labs in virtual time: every operation, every trouble, the same bytes each time."""

import os
import subprocess
import sys

import pytest
from msgspec.structs import replace

from netem.host.layout import ATOMICS
from netem.sim import world
from netem.sim.world import HOP, CannotSimulateError, StuckError, run
from netem.topology.plan import WorkPlan
from transports.clock import MS, US, S
from wire.roce.opcodes import Opcode
from wire.roce.packet import RocePacket, locate

MTU = 1024
SIZES = [0, 1, 3, MTU - 1, MTU, MTU + 1, 65_535, 65_536, 65_537, 1 << 20]
WITH_SIZE = ["send", "send_imm", "send_inv", "write", "write_imm", "read"]


def roce(record):
    """Return the RoCE packet in a recorded frame."""
    place = locate(record.frame)
    return RocePacket.unpack(record.frame[place.bth_offset : place.icrc_offset])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("op", WITH_SIZE)
def test_every_operation_at_every_awkward_size(simulate, op, size):
    """R06, R07, R17: no size is special."""
    sim = simulate(f"workload: [{{op: {op}, from: h0, to: h1, size: {size}B, count: 2}}]")
    assert sim.verdict == ("pass", "")
    assert (sim.flow.completed, sim.flow.bytes) == (2, 2 * size)
    assert sim.flow.retransmissions == 0


@pytest.mark.parametrize(("size", "packets"), [(1024, 1), (1025, 2), (2048, 2), (2049, 3)])
def test_a_write_is_cut_at_the_path_mtu(simulate, size, packets):
    """R06: FIRST and LAST, consecutive PSNs, one acknowledgement."""
    sim = simulate(f"workload: [{{op: write, from: h0, to: h1, size: {size}B}}]")
    sent = [roce(record) for record in sim.records if record.port == "h0:p0"]
    assert len(sent) == packets
    assert len({packet.bth.psn for packet in sent}) == packets
    assert [roce(r).name for r in sim.records if r.port == "h1:p0"] == ["ACKNOWLEDGE"]


@pytest.mark.parametrize("op", ["cmp_swap, compare: 0, swap: 7", "fetch_add, add: 7"])
def test_atomics(simulate, op):
    sim = simulate(f"workload: [{{op: {op}, from: h0, to: h1, count: 50}}]")
    assert sim.verdict == ("pass", "")


MIX = """
workload:
  - {op: write, from: h0, to: h1, size: 9000B, count: 12}
  - {op: read, from: h0, to: h1, size: 9000B, count: 6}
  - {op: send_imm, from: h1, to: h0, size: 3000B, count: 12, imm: 9}
  - {op: fetch_add, from: h1, to: h0, add: 3, count: 12}
transports: {rc: {timeout: 8}}
"""
LINKS = {
    "loss 1 %": "loss: 1%",
    "loss 10 %": "loss: 10%",
    "bursts of loss": "loss: {model: gemodel, p: 3%, r: 80%}",
    "duplicates": "duplicate: 5%",
    "corruption": "corrupt: 5%",
    "reordering": "delay: 20us, reorder: 10%",
    "jitter that reorders": "delay: 20us, jitter: 10us",
    "all of it": "loss: 3%, duplicate: 3%, corrupt: 3%, delay: 9us, reorder: 3%, jitter: 5us",
}


ITEMS = (
    "op: send, size: 3000B",
    "op: send, size: 3000B, recv_count: 2",
    "op: read, size: 3000B, fence: true",
    "op: write, size: 3000B, signaled: false",
    "op: write_imm, size: 3000B, solicited: true, imm: 1",
    "op: fetch_add, add: 1",
)


class TestTrouble:
    """Bad links: every message completes exactly once and memory is right."""

    @pytest.mark.soak
    @pytest.mark.parametrize("seed", range(3, 100))
    @pytest.mark.parametrize("link", LINKS.values(), ids=LINKS)
    def test_everything_completes_once_for_hundreds_of_seeds(self, simulate, link, seed):
        self.test_everything_completes_once_and_memory_is_right(simulate, link, seed)

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize("link", LINKS.values(), ids=LINKS)
    def test_everything_completes_once_and_memory_is_right(self, simulate, link, seed):
        sim = simulate(
            "topology:\n  nodes: {h0: {}, h1: {}}\n"
            f'  links: [{{endpoints: ["h0:p0", "h1:p0"], {link}}}]\n' + MIX,
            seed=seed,
        )
        assert sim.verdict[0] != "fail", sim.verdict  # chance may touch nothing at 1 %
        assert [flow.statuses for flow in sim.judged.flows] == [
            {"SUCCESS": count} for count in (12, 6, 12, 12)
        ]

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(6))
    def test_at_a_fifth_lost_some_give_up_but_each_message_completes_once(self, simulate, seed):
        """Eight tries in a row may well fail then; what must not is the account of it."""
        sim = simulate(
            "topology:\n  nodes: {h0: {}, h1: {}}\n"
            '  links: [{endpoints: ["h0:p0", "h1:p0"], loss: 20%}]\n' + MIX,
            seed=seed,
        )
        for flow in sim.judged.flows:
            assert sum(flow.statuses.values()) == flow.count
            assert set(flow.statuses) <= {"SUCCESS", "RETRY_EXC_ERR", "WR_FLUSH_ERR"}
            assert flow.corrupt_messages == 0

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(8))
    def test_all_kinds_of_work_on_one_queue_pair_over_a_bad_link(self, plan_of, run_plan, seed):
        plan = plan_of(
            "topology:\n  nodes: {h0: {}, h1: {}}\n"
            '  links: [{endpoints: ["h0:p0", "h1:p0"], loss: 5%, duplicate: 2%}]\n'
            "workload: [{op: send, from: h0, to: h1, size: 5000B, count: 500}]\n"
            "transports: {rc: {timeout: 8}}\n",
            seed=seed,
        )
        kinds = ("write", "read", "send", "fetch_add", "write_imm", "cmp_swap", "send_inv")
        works = tuple(
            WorkPlan(
                0, kind, 8 if kind in ATOMICS else 37 * (n + seed) % 5000, n % 4 + 1, swap_add=n
            )
            for n in range(6)
            for kind in kinds
        )
        h0, h1 = plan.nodes
        mine, its = (replace(n.qps[0].region, size=1 << 17) for n in (h0, h1))
        one = replace(h0.qps[0], work=works, region=mine, remote=its)
        other = replace(h1.qps[0], region=its, remote=mine)
        sim = run_plan(
            replace(plan, nodes=(replace(h0, qps=(one,)), replace(h1, qps=(other,))))
        )
        assert sim.verdict == ("pass", "")

    def test_psns_that_wrap_are_no_trouble(self, simulate):
        sim = simulate(
            "workload: [{op: write, from: h0, to: h1, size: 100KiB, first_psn: 0xfffff0}]",
            **{"topology.links[0].loss": "5%"},
        )
        assert sim.verdict == ("pass", "")
        psns = {roce(r).bth.psn for r in sim.records if r.port == "h0:p0"}
        assert {0xFFFFF0, 0xFFFFFF, 0, 0x53} <= psns

    def test_a_gap_is_told_once_and_answered_by_going_back(self, simulate):
        sim = simulate(
            "workload: [{op: write, from: h0, to: h1, size: 20KiB}]\n"
            "faults: [{do: drop, where: {op: WRITE_MIDDLE, psn: +5}, on: h0:p0}]"
        )
        assert sim.verdict == ("pass", "")
        assert (sim.flow.naks, sim.flow.retransmissions, sim.flow.timeouts) == (1, 15, 0)
        (lost,) = sim.lost
        assert lost.comment.startswith("dropped")
        again = [r for r in sim.records if r.comment.startswith("retransmission")]
        assert len(again) == 15
        (told,) = [e for e in sim.outcome.events if e.event == "retransmission"]
        assert (told.node, told.fields["psn"], told.fields["why"]) == (
            "h0", roce(lost).bth.psn, "NAK",
        )  # fmt: skip

    def test_a_black_hole_ends_in_the_time_that_can_be_worked_out(self, simulate):
        """R07, R13: (retry count + 1) timeouts; the error names QP, PSN, tries and time."""
        sim = simulate(
            "workload: [{op: write, from: h0, to: h1, size: 3001B,"
            " expect_status: RETRY_EXC_ERR}]\n"
            "transports: {rc: {timeout: 10, retry: 3}}\n",
            **{"topology.links[0].loss": "100%"},
        )
        assert sim.verdict == ("pass", "")
        assert sim.flow.statuses == {"RETRY_EXC_ERR": 1}
        timeout = 4096 << 10
        assert 4 * timeout <= sim.flow.duration <= 4 * timeout + MS
        for word in ("QP", "PSN", "tries", "ms"):
            assert word in sim.flow.first_error

    @pytest.mark.parametrize("window", [4, 16])
    def test_never_more_packets_are_unacknowledged_than_the_window(self, simulate, window):
        """R08: whatever is sent while the peer's answers are held back."""
        sim = simulate(
            "workload: [{op: write, from: h0, to: h1, size: 3000B, count: 40}]\n"
            f"transports: {{rc: {{window: {window}, timeout: 18}}}}\n"
            "faults: [{do: hold, delay: 100ms, on: h1:p0}]"
        )
        assert sim.verdict == ("pass", "")
        answers = [r.at for r in sim.records if r.port == "h1:p0"]
        assert min(answers) >= 100 * MS
        early = [r for r in sim.records if r.port == "h0:p0" and r.at < 100 * MS]
        assert len({roce(record).bth.psn for record in early}) == window

    def test_a_change_takes_hold_at_its_time_one_way(self, simulate):
        """I02, I06: loss that comes and goes again, in one direction only."""
        sim = simulate(
            "workload: [{op: write, from: h0, to: h1, size: 64KiB, count: 80}]\n"
            "transports: {rc: {timeout: 8}}\n"
            "faults:\n"
            "  - {at: 500us, on: h0->h1, set: {loss: 100%}}\n"
            "  - {at: 3ms, on: h0->h1, set: {loss: 0%}}\n"
        )
        assert sim.flow.statuses == {"SUCCESS": 80}
        assert sim.lost
        assert {record.port for record in sim.lost} == {"h0:p0"}
        assert all(500 * US <= record.at <= 3 * MS for record in sim.lost)


BRIDGED = """
topology:
  nodes: {h0: {}, h1: {}, h2: {}, s: {kind: bridge}}
  links:
    - {endpoints: ["h0:p0", "s:e0"], rate: 1gbit, delay: 1us}
    - {endpoints: ["h1:p0", "s:e1"], rate: 1gbit, delay: 1us}
    - {endpoints: ["h2:p0", "s:e2"], rate: 1gbit, delay: 1us, "s:e2->h2:p0": {limit: 9KiB}}
"""


class TestBridges:
    def test_an_incast_over_a_short_queue_completes_and_then_all_is_idle(
        self, plan_of, run_plan
    ):
        """R09: two senders, a queue of eight packets, 200 messages each."""
        plan = plan_of(
            BRIDGED
            + "workload: [{pattern: incast, op: write, to: h2, size: 4KiB, count: 200}]\n"
            "transports: {rc: {timeout: 10}}\n"
        )
        sim = run_plan(plan)
        assert sim.verdict == ("pass", "")
        assert [flow.statuses for flow in sim.judged.flows] == [{"SUCCESS": 200}] * 2
        dropped = {r.port for r in sim.records if r.killed}
        assert dropped == {"s:e2"}
        assert sim.outcome.notes == ["s: bridge node, simulated as our learning switch"]

    def test_afterwards_nobody_has_a_timer_running(self, plan_of):
        """R09: no work is left over, so nobody would ever wake up again."""
        plan = plan_of(
            BRIDGED
            + "workload: [{pattern: incast, op: write, to: h2, size: 4KiB, count: 20}]\n"
        )
        simulation = world._World(plan, world_sink())
        simulation.run(S, None)
        assert [a.machine.deadline for a in simulation._actors.values()] == [None] * 4

    def test_a_bridge_sends_a_frame_only_where_it_belongs(self, simulate):
        sim = simulate(
            BRIDGED + "workload:\n"
            "  - {op: write, from: h0, to: h1, size: 9B}\n"
            "  - {op: write, from: h0, to: h1, size: 9000B, after: 0}\n"
        )
        ports = [record.port for record in sim.records]
        assert ports.count("s:e1") == ports.count("h0:p0") == 10
        assert ports.count("s:e2") == 1  # the first frame, before the bridge knew h1
        assert ports.count("s:e0") == ports.count("h1:p0") == 2

    def test_what_the_next_link_cannot_carry_the_bridge_drops(self, plan_of, run_plan):
        plan = plan_of(
            BRIDGED + "workload: [{op: write, from: h0, to: h1, size: 4000B,"
            " expect_status: RETRY_EXC_ERR}]\ntransports: {rc: {timeout: 8, retry: 1}}\n"
        )
        nodes = [
            node if node.name != "s" else replace(node, ports=tuple(
                replace(port, mtu=1000) for port in node.ports
            ))
            for node in plan.nodes
        ]  # fmt: skip
        sim = run_plan(replace(plan, nodes=tuple(nodes)))
        (report,) = [r for r in sim.outcome.reports if r.node == "s"]
        assert report.counters["oversized"] > 0
        assert sim.verdict[0] == "pass"


def world_sink():
    class Sink:
        def record(self, *_):
            pass

    return Sink()


LAB = (
    "workload: [{op: write, from: h0, to: h1, size: 64KiB, count: 10},"
    " {op: read, from: h1, to: h0, size: 64KiB, count: 3}]\n"
    "transports: {rc: {timeout: 8}}\n"
)
MORE = {"topology.links[0].loss": "5%", "topology.links[0].jitter": "3us"}


class TestDeterminism:
    def test_the_same_seed_gives_the_same_bytes_at_the_same_times(self, simulate):
        """I10."""
        first = simulate(LAB, seed=3, **MORE)
        second = simulate(LAB, seed=3, **MORE)
        assert first.records == second.records
        assert first.outcome == second.outcome

    @pytest.mark.slow
    def test_the_hash_seed_of_the_interpreter_does_not_matter(self):
        code = (
            "import sys, hashlib, pathlib; from netem.topology.load import load_lab;"
            "from netem.topology.planner import plan_lab; from netem.sim.world import run;"
            "Sink = type('Sink', (list,), {'record': lambda self, *a: self.append(a)});"
            "sink = Sink(); outcome = run(plan_lab(load_lab(sys.argv[1])), sink);"
            "print(hashlib.sha256(repr((list(sink), outcome)).encode()).hexdigest())"
        )
        lab = BRIDGED + "workload: [{pattern: all_to_all, op: write, size: 9KiB}]\n"
        digests = {
            subprocess.run(
                [sys.executable, "-c", code, lab],
                env=os.environ | {"PYTHONHASHSEED": seed},
                capture_output=True,
                check=True,
                timeout=60,
            ).stdout
            for seed in ("0", "1")
        }
        assert len(digests) == 1

    def test_another_seed_gives_others(self, simulate):
        first = simulate(LAB, seed=3, **MORE)
        second = simulate(LAB, seed=4, **MORE)
        assert first.records != second.records

    def test_records_come_in_order_of_time(self, simulate):
        times = [record.at for record in simulate(LAB, **MORE).records]
        assert times == sorted(times)

    def test_a_hop_takes_its_time_where_a_lab_has_no_delay(self, simulate):
        sim = simulate(
            'topology: {nodes: {h0: {}, h1: {}}, links: [{endpoints: ["h0:p0", "h1:p0"]}]}\n'
            "workload: [{op: write, from: h0, to: h1, size: 8B}]\n"
        )
        assert [record.at for record in sim.records] == [0, HOP]
        assert sim.flow.duration == 2 * HOP


class TestOrderOfWork:
    def test_items_follow_each_other_across_hosts(self, simulate):
        sim = simulate(
            "workload:\n"
            "  - {op: write, from: h0, to: h1, size: 8KiB, qps: 3}\n"
            "  - {op: read, from: h1, to: h0, size: 8KiB, after: 0}\n"
            "  - {op: send, from: h0, to: h1, size: 8KiB, after: 1, at: 4ms}\n"
        )
        assert sim.verdict == ("pass", "")
        times = {
            e.fields["flow"]: e.at for e in sim.outcome.events if e.event == "item_started"
        }
        ends = {e.fields["flow"]: e.at for e in sim.outcome.events if e.event == "item_done"}
        assert times["1/h1->h0/0"] == max(ends[f"0/h0->h1/{n}"] for n in range(3))
        assert times["2/h0->h1/0"] == 4 * MS > ends["1/h1->h0/0"]

    def test_until_work_begins_the_links_are_silent(self, simulate):
        """P07: no frame on an idle link, for ten seconds."""
        sim = simulate("workload: [{op: write, from: h0, to: h1, size: 8B, at: 10s}]")
        assert min(record.at for record in sim.records) >= 10 * S

    def test_a_lab_without_work_sends_nothing(self, simulate):
        """P07."""
        sim = simulate("seed: 1")
        assert (sim.records, sim.outcome.duration) == ([], 0)


class TestVlan:
    def test_a_link_with_a_vlan_carries_the_same_exchange_tagged(self, simulate):
        """R21, W27."""
        text = "workload: [{op: write, from: h0, to: h1, size: 9000B}]"
        plain = simulate(text)
        tagged = simulate(text, **{"topology.links[0].vlan": 100})
        assert tagged.verdict == ("pass", "")
        assert {record.frame[12:16] for record in tagged.records} == {b"\x81\x00\x00\x64"}
        untagged = [r.frame[:12] + r.frame[16:] for r in tagged.records]
        assert untagged == [record.frame for record in plain.records]


class TestNeighbours:
    @pytest.mark.parametrize("family", ["ipv6", "ipv4"])
    def test_what_the_plan_does_not_know_is_asked_for_once(self, plan_of, run_plan, family):
        plan = plan_of(
            "workload: [{op: write, from: h0, to: h1, size: 9000B, count: 20}]",
            **{"defaults.host.family": family},
        )
        nodes = tuple(replace(node, neighbours=()) for node in plan.nodes)
        sim = run_plan(replace(plan, nodes=nodes))
        assert sim.verdict == ("pass", "")
        assert sim.flow.retransmissions == 0
        first = [record.port for record in sim.records[:3]]
        assert first == ["h0:p0", "h1:p0", "h0:p0"]  # question, answer, first packet
        counters = {report.node: report.counters for report in sim.outcome.reports}
        asked = "arp_answers" if family == "ipv4" else "nd_answers"
        assert counters["h1"][f"p0.neighbour.{asked}"] == 1

    def test_an_address_that_nobody_answers_for_is_told(self, plan_of, run_plan):
        plan = plan_of(
            "workload: [{op: write, from: h0, to: h1, size: 8B}]\n"
            "transports: {rc: {timeout: 17, retry: 7}}\n",
            **{"topology.links[0].loss": "100%"},
        )
        nodes = tuple(replace(node, neighbours=()) for node in plan.nodes)
        sim = run_plan(replace(plan, nodes=nodes))
        told = [e for e in sim.outcome.events if e.event == "unresolved"]
        assert told[0].fields["why"] == "nobody answers for fd00::2"
        assert sim.flow.statuses == {"RETRY_EXC_ERR": 1}
        assert {len(record.frame) for record in sim.records} == {14 + 40 + 32}  # questions


class TestOptions:
    """What a lab may ask of its transport and its work."""

    @pytest.mark.parametrize("transport", ["credits: true", "window: 1", "max_rd_atomic: 1"])
    @pytest.mark.parametrize("item", ITEMS)
    def test_everything_completes(self, simulate, transport, item):
        sim = simulate(
            f"workload: [{{{item}, from: h0, to: h1, count: 50}}]\n"
            f"transports: {{rc: {{{transport}, rnr_timer: 0.01ms}}}}\n"
        )
        assert sim.verdict == ("pass", "")


class TestEnds:
    def test_a_flow_that_can_never_end_is_told(self, simulate):
        """L12: what is stuck, and where, instead of silence."""
        sim = simulate(
            "workload: [{op: write, from: h0, to: h1, size: 8B}]\n"
            "transports: {rc: {timeout: 0}}\n",
            **{"topology.links[0].loss": "100%"},
        )
        assert sim.verdict == (
            "fail",
            "nothing is left to happen, and flow 0/h0->h1/0 is not complete",
        )

    def test_emulated_time_has_a_limit(self, plan_of, run_plan):
        plan = plan_of("workload: [{op: write, from: h0, to: h1, size: 1MiB, count: 100}]\n")
        sim = run_plan(plan, until=5 * MS)
        assert sim.outcome.duration == 5 * MS
        assert sim.verdict == (
            "fail",
            "the limit of 5ms was reached, and flow 0/h0->h1/0 is not complete",
        )

    def test_the_labs_own_limit_is_emulated_seconds(self, simulate):
        sim = simulate(
            "limit: 2s\nworkload: [{op: write, from: h0, to: h1, size: 8B, at: 3s}]\n"
        )
        assert sim.outcome.trouble.startswith("the limit of 2s was reached")

    def test_progress_is_told_and_ctrl_c_ends_the_run_in_order(self, plan_of, run_plan):
        plan = plan_of("workload: [{op: write, from: h0, to: h1, size: 1MiB, count: 9}]\n")
        told = []
        run_plan(plan, progress=lambda *facts: told.append(facts))
        assert told
        assert all(total == 1 for _, _, total in told)

        def interrupt(*_):
            raise KeyboardInterrupt

        sim = run_plan(plan, progress=interrupt)
        assert sim.verdict == ("fail", "interrupted")
        assert sim.flow.packets > 0

    def test_what_lives_in_a_kernel_of_its_own_is_refused_by_name(self, plan_of):
        plan = plan_of("seed: 1")
        h0, h1 = plan.nodes
        guest = replace(plan, nodes=(h0, replace(h1, kind="guest")))
        with pytest.raises(CannotSimulateError, match="h1 is a guest"):
            run(guest, world_sink())

    def test_what_stands_in_for_what_is_told(self, simulate):
        sim = simulate(
            "workload: [{op: write, from: h0, to: h1, size: 8B}]\n",
            **{"defaults.host.mode": "datagram"},
        )
        assert sim.outcome.notes == [
            "h0: simulated in frame mode",
            "h1: simulated in frame mode",
        ]

    def test_a_machine_that_leaves_its_deadline_in_the_past_is_named(self, plan_of):
        plan = plan_of("workload: [{op: write, from: h0, to: h1, size: 8B}]\n")
        simulation = world._World(plan, world_sink())

        class Stubborn:
            deadline = 0

            def __getattr__(self, name):
                return lambda *_: ()

        simulation._actors["h1"].machine = Stubborn()
        with pytest.raises(StuckError, match="h1: a deadline stays in the past at 0 ns"):
            simulation.run(S, None)


def test_what_is_recorded_of_a_lossless_run_is_what_was_sent(simulate):
    sim = simulate("workload: [{op: write, from: h0, to: h1, size: 100KiB}]")
    (flow,) = sim.judged.flows
    assert len(sim.records) == flow.packets
    names = [roce(record).bth.opcode for record in sim.records if record.port == "h0:p0"]
    assert names == [Opcode.RC_WRITE_FIRST] + [Opcode.RC_WRITE_MIDDLE] * 98 + [
        Opcode.RC_WRITE_LAST
    ]
