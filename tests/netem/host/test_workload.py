"""What a host does with its plan: posts in order, judges memory, says what happened."""

from random import Random

import pytest
from msgspec.structs import replace

from netem.host.datagram import DatagramHost
from netem.host.host import Host
from netem.host.layout import LayoutError
from netem.host.payload import fill, start_of
from netem.topology.plan import WorkPlan
from transports.clock import MS

WRITE = "{op: write, from: h0, to: h1, size: 100B, count: 5}"


class Pair:
    """Two hosts joined by nothing but this class: frames arrive at once, unless held back."""

    kind = Host

    def __init__(self, plan):
        self.hosts = {name: self.kind(plan, name) for name in ("h0", "h1")}
        self.now = 0
        self.told = {"h0": [], "h1": []}
        self.flying = []
        for host in self.hosts.values():
            host.start(0)

    def send(self):
        """Take what both hosts send now; it is delivered by `deliver`."""
        for name, host in self.hosts.items():
            other = "h1" if name == "h0" else "h0"
            self.flying += [(other, frame) for _, frame, _ in host.transmit(self.now)]
            self.told[name] += host.events()
        return len(self.flying)

    def deliver(self):
        flying, self.flying = self.flying, []
        for name, frame in flying:
            self.hosts[name].receive("p0", frame, self.now)

    def settle(self):
        while self.send():
            self.deliver()

    def region(self, name):
        workload = self.hosts[name]._workload
        (end,) = {**workload.requesters, **workload.responders}.values()
        return end._memory.bytes

    def flow(self, name, flow="0/h0->h1/0"):
        return {flow.flow: flow for flow in self.hosts[name].report().flows}[flow]

    def events(self, name, event):
        return [told.fields for told in self.told[name] if told.event == event]


class DatagramPair(Pair):
    """The same over UDP payloads: trains go out and come in as they are."""

    kind = DatagramHost

    def send(self):
        for name, host in self.hosts.items():
            other = "h1" if name == "h0" else "h0"
            self.flying += [(other, sent) for _, sent in host.transmit_datagrams(self.now)]
            self.told[name] += host.events()
        return len(self.flying)

    def deliver(self):
        flying, self.flying = self.flying, []
        for name, sent in flying:
            source = IPS["h1" if name == "h0" else "h0"]
            assert sent.dst_ip == IPS[name]
            self.hosts[name].receive_train(
                "p0",
                sent.payload,
                sent.segment_size,
                source,
                sent.src_port,
                IPS[name],
                self.now,
            )


IPS = {
    name: bytes.fromhex("fd00" + "00" * 13 + last)
    for name, last in (("h0", "01"), ("h1", "02"))
}


@pytest.fixture(params=[Pair, DatagramPair], ids=["frame", "datagram"])
def pair(make_plan, request):
    return lambda *items, **more: request.param(make_plan(*items, **more))


OPS = {
    "send": "op: send, size: 100B",
    "send_imm": "op: send_imm, size: 100B, imm: 7",
    "send_inv": "op: send_inv, size: 100B",
    "write": "op: write, size: 100B",
    "write_imm": "op: write_imm, size: 100B, imm: 7",
    "read": "op: read, size: 100B",
    "cmp_swap": "op: cmp_swap, compare: 0, swap: 5",
    "fetch_add": "op: fetch_add, add: 5",
}


@pytest.mark.parametrize("op", OPS)
def test_every_operation_completes_once_per_message_and_memory_is_right(pair, op):
    both = pair(f"{{{OPS[op]}, from: h0, to: h1, count: 700}}")
    both.settle()
    mine, other = both.flow("h0"), both.flow("h1")
    assert (mine.posted, mine.statuses, mine.corrupt_messages) == (700, {"SUCCESS": 700}, 0)
    assert (other.corrupt_messages, mine.first_error) == (0, "")
    assert mine.bytes == 700 * (8 if "100B" not in OPS[op] else 100)
    assert both.hosts["h0"].is_done
    assert both.hosts["h0"].deadline is both.hosts["h1"].deadline is None


@pytest.mark.parametrize("size", ["128KiB", "1MiB", "1200000B"])
@pytest.mark.parametrize("op", ["send", "write"])
def test_messages_longer_than_a_period_of_the_payload_are_right(pair, op, size):
    both = pair(f"{{op: {op}, size: {size}, from: h0, to: h1, count: 3}}")
    both.settle()
    assert both.flow("h0").statuses == {"SUCCESS": 3}
    assert both.flow("h1").bytes == both.flow("h0").bytes
    assert both.flow("h1").corrupt_messages == 0


@pytest.mark.parametrize("op", ["send", "send_imm", "send_inv", "write", "write_imm"])
def test_the_responder_counts_what_it_got(pair, op):
    both = pair(f"{{{OPS[op]}, from: h0, to: h1, count: 700}}")
    both.settle()
    other = both.flow("h1")
    assert other.bytes == 70_000
    assert other.received == (0 if op == "write" else 700)


class TestJudgingMemory:
    """A byte that is wrong is found, wherever it is wrong."""

    @pytest.mark.parametrize("op", ["send", "write", "write_imm"])
    def test_what_landed_wrong_is_found_before_the_acknowledgement_leaves(self, pair, op):
        both = pair(f"{{{OPS[op]}, from: h0, to: h1}}")
        both.send()
        both.deliver()
        sent = memoryview(bytearray(100))
        fill(sent, 0, start_of("0/h0->h1/0"), 100)
        at = both.region("h1").index(sent)
        both.region("h1")[at + 50] ^= 1
        both.settle()
        assert both.flow("h1").corrupt_messages == 1
        (told,) = both.events("h1", "corrupt_message")
        assert told["wr"] == 0

    def test_what_changes_after_it_was_written_is_found_at_the_end_and_told_once(self, pair):
        both = pair(WRITE)
        both.settle()
        assert both.flow("h1").corrupt_messages == 0
        both = pair(WRITE)
        both.settle()
        both.region("h1")[450] ^= 1
        assert both.flow("h1").corrupt_messages == 1
        assert both.flow("h1").corrupt_messages == 1

    def test_a_read_that_brings_something_else_is_found(self, pair):
        both = pair("{op: read, from: h0, to: h1, size: 100B, count: 5}")
        both.region("h1")[53] ^= 1
        both.settle()
        assert both.flow("h0").corrupt_messages == 1
        (told,) = both.events("h0", "corrupt_message")
        assert told["wr"] == 0

    @pytest.mark.parametrize("op", ["cmp_swap", "fetch_add"])
    def test_an_atomic_that_returns_something_else_is_found_once(self, pair, op):
        both = pair(f"{{{OPS[op]}, from: h0, to: h1, count: 5}}")
        both.region("h1")[0] ^= 0x80
        both.settle()
        assert both.flow("h0").corrupt_messages == 1

    def test_an_immediate_that_is_another_one_is_found(self, make_plan):
        plan = make_plan("{op: send_imm, from: h0, to: h1, size: 8B, imm: 7}")
        other = make_plan("{op: send_imm, from: h0, to: h1, size: 8B, imm: 8}")
        both = Pair(plan)
        both.hosts["h1"] = Host(other, "h1")
        both.settle()
        (told,) = both.events("h1", "corrupt_message")
        assert told["why"] == "the immediate is 7, not 8"


class TestOrder:
    def test_thousands_of_messages_are_posted_a_few_at_a_time(self, pair):
        both = pair("{op: write, from: h0, to: h1, size: 1KiB, count: 100000}")
        both.send()
        assert both.flow("h0").posted <= 256

    def test_work_begins_at_its_time_and_not_before(self, pair):
        both = pair("{op: write, from: h0, to: h1, size: 8B, at: 5ms}")
        both.settle()
        assert both.flow("h0").posted == 0
        assert both.hosts["h0"].deadline == 5 * MS
        both.now = 5 * MS
        both.hosts["h0"].expire(both.now)
        both.settle()
        assert both.flow("h0").started == 5 * MS

    def test_work_waits_for_the_item_it_comes_after(self, make_plan):
        plan = make_plan(WRITE, "{op: write, from: h1, to: h0, size: 8B, after: 0}")
        both = Pair(plan)
        both.settle()
        assert both.flow("h1", "1/h1->h0/0").posted == 0
        both.hosts["h1"].release(0, both.now)
        both.settle()
        assert both.flow("h1", "1/h1->h0/0").statuses == {"SUCCESS": 1}

    def test_a_finished_item_is_told_once_with_its_flow(self, pair):
        both = pair(WRITE)
        both.settle()
        (told,) = both.events("h0", "item_done")
        assert (told["flow"], told["item"], told["status"]) == ("0/h0->h1/0", 0, "SUCCESS")
        assert both.flow("h0").items_done == [0]

    def test_unsignaled_requests_are_accounted_for_all_the_same(self, pair):
        both = pair("{op: write, from: h0, to: h1, size: 8B, count: 1000, signaled: false}")
        both.settle()
        assert both.flow("h0").statuses == {"SUCCESS": 1000}


class TestFailure:
    def test_the_first_error_is_one_line_and_the_rest_flushes(self, pair):
        both = pair(
            "{op: write, from: h0, to: h1, size: 64B, count: 1000, bad_key: true,"
            " expect_status: REM_ACCESS_ERR}"
        )
        both.settle()
        mine = both.flow("h0")
        assert mine.statuses == {"REM_ACCESS_ERR": 1, "WR_FLUSH_ERR": 999}
        assert mine.first_error.startswith("REM_ACCESS_ERR: ")
        assert "\n" not in mine.first_error
        assert both.hosts["h0"].is_done

    def test_a_failed_item_is_done_too_so_that_others_go_on(self, pair):
        both = pair("{op: write, from: h0, to: h1, size: 64B, bad_key: true}")
        both.settle()
        assert [told["status"] for told in both.events("h0", "item_done")] == ["REM_ACCESS_ERR"]
        assert both.events("h1", "qp_fatal")

    def test_a_key_that_nobody_has_is_nobodys(self, make_plan):
        plan = make_plan("{op: write, from: h0, to: h1, size: 64B, bad_key: true}")
        (qp,) = plan.node("h1").qps
        host = Host(plan, "h0")
        host.start(0)
        ((_, frame, _),) = host.transmit(0)
        key = int.from_bytes(frame[14 + 40 + 8 + 12 + 8 :][:4], "big")
        assert key >> 8 not in {qp.region.r_key >> 8, qp.region.l_key >> 8}

    def test_without_a_receive_the_requester_hears_receiver_not_ready(self, pair):
        """R19: "receiver not ready", not "timeout"."""
        both = pair(
            "{op: send, from: h0, to: h1, size: 64B, recv_count: 0}",
            more="transports: {rc: {rnr_retry: 0}}\n",
        )
        both.settle()
        assert both.flow("h0").statuses == {"RNR_RETRY_EXC_ERR": 1}


class TestMixedWork:
    """Several works on one queue pair, as a program would have them."""

    def mixed(self, make_plan, *works, size=1 << 16, count=400):
        plan = make_plan(f"{{op: send, from: h0, to: h1, size: 500B, count: {count}}}")
        h0, h1 = plan.nodes
        (one,), (other,) = h0.qps, h1.qps
        mine, its = replace(one.region, size=size), replace(other.region, size=size)
        one = replace(one, work=works, region=mine, remote=its)
        other = replace(other, region=its, remote=mine)
        return Pair(replace(plan, nodes=(replace(h0, qps=(one,)), replace(h1, qps=(other,)))))

    def test_all_kinds_in_turn(self, make_plan):
        kinds = ("write", "read", "send", "write_imm", "cmp_swap", "send_inv", "fetch_add")
        works = [
            WorkPlan(
                0, kind, 8 if kind in {"cmp_swap", "fetch_add"} else 100 * n, 3, swap_add=9
            )
            for n in range(5)
            for kind in kinds
        ]
        both = self.mixed(make_plan, *works)
        both.settle()
        assert both.flow("h0").statuses == {"SUCCESS": 3 * len(works)}
        assert both.flow("h0").corrupt_messages == both.flow("h1").corrupt_messages == 0
        assert both.flow("h1").received == 45

    def test_a_write_is_silent_and_the_one_with_immediate_behind_it_is_not(self, make_plan):
        """R18: a receive completion only for the latter, and the buffer is complete by then."""
        both = self.mixed(
            make_plan, WorkPlan(0, "write", 500), WorkPlan(0, "write_imm", 0, imm=5)
        )
        both.settle()
        assert len(both.events("h1", "received")) == 1
        assert (both.flow("h1").bytes, both.flow("h1").corrupt_messages) == (500, 0)

    def test_work_that_is_added_later_is_judged_like_any_other(self, pair):
        both = pair(WRITE)
        both.settle()
        work = WorkPlan(7, "write", 50, 300)
        for host in both.hosts.values():
            assert host.post("0/h0->h1/0", work, both.now)
        both.settle()
        assert both.flow("h0").statuses == {"SUCCESS": 305}
        assert both.flow("h1").bytes == 500 + 15_000
        assert both.flow("h0").items_done == [0, 7]

    def test_work_that_cannot_be_added_is_refused_at_both_ends(self, pair):
        both = pair(WRITE)
        for host in both.hosts.values():
            with pytest.raises(LayoutError):
                host.post("0/h0->h1/0", WorkPlan(7, "write", 5000), 0)
            assert not host.post("9/h0->h1/0", WorkPlan(7, "write", 5), 0)


def test_of_many_successes_only_the_first_are_told_and_failures_always(pair):
    both = pair("{op: write, from: h0, to: h1, size: 8B, count: 1000}")
    both.settle()
    assert len(both.events("h0", "completion")) == 64


@pytest.mark.parametrize("item", ["{op: write, from: h0, to: h1, size: 300KiB, count: 2}"])
def test_both_modes_send_the_same_packets_from_the_bth_up(make_plan, item):
    plan = make_plan(item)
    frame, datagram = Host(plan, "h0"), DatagramHost(plan, "h0")
    frame.start(0)
    datagram.start(0)
    singly = [bytes(sent[14 + 40 + 8 :]) for _, sent, _ in frame.transmit(0)]
    in_trains = [
        bytes(sent.payload[at : at + sent.segment_size])
        for _, sent in datagram.transmit_datagrams(0)
        for at in range(0, len(sent.payload), sent.segment_size)
    ]
    assert in_trains == singly[: len(in_trains)]
    assert 0 <= len(singly) - len(in_trains) < 8  # where a window cuts, trains are whole
    assert len(singly) == 128  # the window


def test_any_datagrams_at_all_are_survived(make_plan):
    host = DatagramHost(make_plan(WRITE), "h1")
    rng = Random(5)
    for size in range(300):
        junk = rng.randbytes(size)
        host.receive_datagram("p0", junk, IPS["h0"], 0xC000, IPS["h1"], 1)
        host.receive_train("p0", junk, size % 7, IPS["h0"], 0xC000, IPS["h1"], 1)
    assert list(host.transmit_datagrams(1)) == []
    counters = host.report().counters
    refused = sum(n for name, n in counters.items() if name.startswith("p0.roce.refused"))
    assert refused == counters["p0.roce.received_packets"] > 600


def test_a_hand_out_that_is_stopped_half_way_is_resumed_without_a_loss(make_plan):
    plan = make_plan("{op: write, from: h0, to: h1, size: 50KiB}")
    whole, parts = Host(plan, "h0"), Host(plan, "h0")
    for host in (whole, parts):
        host.start(0)
    resumed = []
    while frame := next(iter(parts.transmit(0)), None):
        resumed.append(frame)
    assert resumed == list(whole.transmit(0))


def test_a_report_lists_every_kind_of_counter_with_its_port(make_plan):
    counters = Host(make_plan(WRITE), "h0").report().counters
    assert counters["p0.frame.foreign_mac"] == counters["p0.roce.sent_packets"] == 0
