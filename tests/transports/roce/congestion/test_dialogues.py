"""DCQCN of a queue pair, as a peer sees it. Rows of section H of the conformance list.

N8 to N10 are a switch's: tests/netem/switch/test_congestion_rows.py.
"""

import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.transports.roce.script import (
    MTU,
    OUR_QP,
    PEER_QP,
    R_KEY,
    VA,
    Dialogue,
    ack,
    ip_packet,
    opened,
    read,
    read_request,
    read_response,
    said,
    sealed,
    send,
    us,
    write,
    write_first,
    write_only,
)
from tests.transports.roce.sim import Trouble, World
from transports.roce.attributes import AddressHandle, QpState
from transports.roce.congestion.control import CongestionConfig
from transports.roce.congestion.parameters import PAPER, Dcqcn
from transports.roce.datagram import DatagramDevice
from transports.roce.device import Device, DeviceConfig
from transports.roce.qp import QpConfig
from transports.roce.work import SendWr, Sge, WrOpcode
from wire.roce.eths import Reth
from wire.roce.icrc import ICRC
from wire.roce.opcodes import Service

CE = 3
GBIT = 1_000_000_000
# 1,166 bytes of a full MIDDLE over IPv6 on the wire take a microsecond.
MIDDLE = 62 + 12 + MTU + 4
LINE = MIDDLE * 8 * 1_000_000
CNP = said("CNP", 0, payload=bytes(16), becn=True)


def config(**dcqcn):
    given = {"rpg_byte_reset": 0, "rpg_time_reset": us(1000), **dcqcn}
    return CongestionConfig(LINE, Dcqcn(**given))


@pytest.fixture
def cc(dialogue):
    """Return a dialogue whose queue pair has congestion control."""
    return dialogue(config={"congestion": config()})


def marks(dialogue, packet, at=None, tos=CE):
    """Deliver a packet of the peer that a switch has marked."""
    if at is not None:
        dialogue.passes(at)
    dialogue.receives_raw(ip_packet(packet, *dialogue.ends, tos=tos))


def silent(psn):
    """Return a packet that nothing would be answered to."""
    return write_only(psn, ack_req=False)


class TestNotificationPoint:
    def test_n1_marked_data_is_told_at_once_and_then_once_in_an_interval(self, cc):
        marks(cc, silent(0))
        cc.sends("CNP", psn=0)
        for psn, at in ((1, 1), (2, 25), (3, 49)):
            marks(cc, silent(psn), at=us(at))
        cc.sends_nothing()
        marks(cc, silent(4), at=us(50))
        cc.sends("CNP")
        cc.sends_nothing(until=us(1000))

    def test_n1_the_interval_is_a_setting(self, dialogue):
        cc = dialogue(config={"congestion": config(min_time_between_cnps=us(4))})
        for psn in range(9):
            marks(cc, silent(psn), at=us(psn))
        for _ in range(3):  # at 0, 4 and 8 us
            cc.sends("CNP")
        cc.sends_nothing()

    @pytest.mark.parametrize("family", [4, 6])
    def test_n2_a_cnp_has_its_format(self, dialogue, family):
        """Opcode 0x81, BECN, the source's QP, 16 zero bytes; TOS as a ConnectX-4 Lx has."""
        cc = dialogue(family=family, config={"congestion": config()})
        marks(cc, silent(0))
        raw = cc.said[-1][2]
        bth = raw[{4: 28, 6: 48}[family] :]
        assert len(raw) == {4: 60, 6: 80}[family]
        assert raw[1] == 0xC2 if family == 4 else raw[:2] == b"\x6c\x20"
        if family == 4:
            assert raw[2:4] == (60).to_bytes(2, "big")
        assert bth[:12].hex(" ", 4) == f"8140ffff 40{PEER_QP:06x} 00000000"
        assert bth[12:-4] == bytes(16)
        assert opened(raw).name == "CNP"  # which checks the ICRC

    def test_n2_a_cnp_is_the_one_that_an_adapter_sent(self):
        """From a ConnectX-4 Lx, in scapy's RoCE tests: every byte but the UDP source port.

        Theirs is 0, ours is that of the queue pair; the ICRC covers it.
        """
        ours, peers = bytes([10, 0, 17, 1]), bytes([10, 0, 18, 1])
        rng = random.Random(1)
        rng.randrange = lambda _stop: 0x718B  # the identification before
        device = Device(DeviceConfig((ours,), mig_req=False), rng)
        qp = device.create_qp(
            device.alloc_pd(), qp_num=OUR_QP, config=QpConfig(congestion=config())
        )
        qp.modify(QpState.INIT, 0, pkey_index=0, port_num=1, qp_access_flags=0xE)
        qp.modify(
            QpState.RTR, 0, ah=AddressHandle(ours, peers), path_mtu=MTU, dest_qp_num=0x118,
            rq_psn=0, max_dest_rd_atomic=1, min_rnr_timer=12,
        )  # fmt: skip
        qp.modify(
            QpState.RTS, 0, sq_psn=0, timeout=14, retry_cnt=7, rnr_retry=7, max_rd_atomic=1
        )
        device.receive(ip_packet(silent(9), peers, ours, tos=CE), 0)
        cnp, *_ = device.transmit(0)
        assert opened(cnp.packet).name == "CNP"
        like_theirs = bytearray(cnp.packet)
        like_theirs[20:22] = bytes(2)
        assert sealed(like_theirs) == bytes.fromhex(
            "45c2003c718c4000401191610a0011010a001201 000012b700280000"
            "8100ffff4000011800000000 00000000000000000000000000000000 82fd002a"
        )

    def test_n2_the_dscp_is_a_setting(self, dialogue):
        cc = dialogue(family=4, config={"congestion": config(cnp_dscp=46)})
        marks(cc, silent(0))
        assert cc.said[-1][2][1] == 46 << 2 | 2

    def test_n3_a_mark_on_a_packet_with_a_bad_icrc_says_nothing(self, cc):
        packet = ip_packet(silent(0), *cc.ends, tos=CE)
        packet[-1] ^= 1
        cc.ignores(packet)
        marks(cc, silent(0))  # known by now, and bad again
        cc.sends("CNP")
        packet = ip_packet(silent(1), *cc.ends, tos=CE)
        packet[-ICRC.size] ^= 1
        cc.passes(us(1000))
        cc.ignores(packet)

    @pytest.mark.parametrize("tos", [0, 1, 2, 0xFC])
    def test_only_ce_is_a_mark(self, cc, tos):
        marks(cc, silent(0), tos=tos)
        cc.sends_nothing()

    @pytest.mark.parametrize("tos", [CE, 26 << 2 | CE])
    @pytest.mark.parametrize("family", [4, 6])
    def test_the_first_packet_of_a_flow_and_a_known_one_are_treated_alike(
        self, dialogue, family, tos
    ):
        cc = dialogue(family=family, config={"congestion": config(min_time_between_cnps=us(1))})
        for psn in range(3):
            marks(cc, silent(psn), at=us(2 * psn), tos=tos)
            cc.sends("CNP")
        assert cc.device.counters()["np_ecn_marked_roce_packets"] == 3

    @pytest.mark.parametrize(
        "packet",
        [ack(0), said("CNP", 0, payload=bytes(16)), read_request(0, 8)],
        ids=["ACK", "CNP", "READ request"],
    )
    def test_what_carries_no_data_is_no_reason_for_a_cnp(self, cc, packet):
        marks(cc, packet)
        assert "CNP" not in [opened(raw).name for _, ours, raw in cc.said if ours]

    def test_a_marked_read_response_is_told_to_the_responder(self, cc):
        """The notification goes against the data, whoever asked for it."""
        cc.posts(read(8))
        cc.sends("READ_REQUEST")
        marks(cc, read_response("ONLY", 0, bytes(8)))
        cc.sends("CNP")
        cc.completes(1)

    def test_a_duplicate_and_an_early_packet_count_too(self, cc):
        marks(cc, silent(9))
        assert {cc.sends_any().name for _ in range(2)} == {"CNP", "ACKNOWLEDGE"}

    def test_a_middle_that_goes_the_short_way_counts(self, cc):
        cc.receives(write_first(0, 4 * MTU))
        for psn in (1, 2):
            marks(cc, said("WRITE_MIDDLE", psn, payload=bytes(MTU)), at=us(60 * psn))
            cc.sends("CNP")

    def test_without_congestion_control_marks_are_counted_and_nothing_is_sent(self, rc):
        marks(rc, silent(0))
        rc.sends_nothing(until=us(1000))
        assert rc.device.counters()["np_ecn_marked_roce_packets"] == 1

    def test_a_cnp_goes_out_before_what_else_waits(self, cc):
        cc.device.receive(ip_packet(write_only(0, ack_req=True), *cc.ends, tos=CE), 0)
        cc.posts(write(8))
        cc.sends("CNP")

    def test_a_reset_queue_pair_tells_nothing(self, cc):
        cc.device.receive(ip_packet(silent(0), *cc.ends, tos=CE), 0)
        cc.modifies(QpState.RESET)
        cc.sends_nothing()


class TestReactionPoint:
    def slowed(self, dialogue, cnps=1, **dcqcn):
        """Return a dialogue after so many CNPs, all at time 0: the rate is LINE / 2^cnps."""
        cc = dialogue(config={"congestion": config(**dcqcn), "window": 64})
        cc.receives(*[CNP] * cnps)
        return cc

    def test_n4_after_a_cnp_packets_leave_at_half_the_rate(self, dialogue):
        """The FIRST has a RETH: 16 bytes more, in 2 us and 29 ns. A MIDDLE takes 2 us."""
        cc = self.slowed(dialogue)
        assert cc.qp.congestion.reaction.target == LINE
        cc.posts(write(4 * MTU))
        cc.sends("WRITE_FIRST")
        cc.sends_nothing(until=us(2) + 29 - 1)
        cc.passes(us(2) + 30)
        cc.sends("WRITE_MIDDLE", psn=1)
        cc.sends_nothing(until=us(4) + 29 - 1)
        cc.passes(us(4) + 30)
        cc.sends("WRITE_MIDDLE", psn=2)
        cc.passes(us(6) + 30)
        cc.sends("WRITE_LAST")

    def test_before_any_cnp_packets_leave_at_the_rate_of_the_line(self, cc):
        """So that a CNP finds something that it can hold back."""
        cc.posts(*[send(MTU, wr_id=n) for n in range(20)])
        for n in range(20):
            cc.passes(us(n))
            assert cc.waiting == n + 1

    def test_what_nothing_held_back_has_saved_nothing_up(self, cc):
        cc.posts(send(MTU))
        cc.passes(us(100))
        cc.posts(*[send(MTU, wr_id=n) for n in range(3)])
        assert cc.waiting == 2

    def test_n4_a_cnp_in_the_middle_of_a_wait_stretches_it(self, dialogue):
        cc = self.slowed(dialogue)
        cc.posts(*[send(MTU, wr_id=n) for n in range(3)])
        cc.sends("SEND_ONLY")
        cc.receives(CNP, at=us(1))  # one of two microseconds is left: now two
        cc.sends_nothing(until=us(3) - 1)
        cc.passes(us(3))
        cc.sends("SEND_ONLY")
        cc.sends_nothing(until=us(7) - 1)
        cc.passes(us(7))
        cc.sends("SEND_ONLY")

    def test_n6_an_increase_in_the_middle_of_a_wait_shortens_it(self, dialogue):
        """At LINE / 4 a packet takes 4 us; after 2 us R_C = 3/8: the other half in 4/3 us."""
        cc = self.slowed(dialogue, cnps=2, rpg_time_reset=us(2), rpg_threshold=1)
        cc.posts(*[send(MTU, wr_id=n) for n in range(2)])
        cc.sends("SEND_ONLY")
        cc.sends_nothing(until=us(2) + 1333)
        cc.passes(us(2) + 1334)
        cc.sends("SEND_ONLY")

    def test_acknowledgements_are_not_held_back(self, dialogue):
        cc = self.slowed(dialogue, cnps=8)
        cc.posts(*[send(MTU, wr_id=n) for n in range(2)])
        cc.sends("SEND_ONLY", psn=0)
        cc.receives(write_only(0, ack_req=True), at=us(1))
        cc.sends_acks(psn=0, msn=1)
        cc.sends_nothing(until=us(200))

    def test_read_responses_are_paced_and_no_ack_overtakes_them(self, dialogue):
        """Row R60 holds also where the data must wait."""
        cc = self.slowed(dialogue)
        cc.receives_together(read_request(0, 3 * MTU), write_only(3, ack_req=True))
        cc.sends("READ_RESPONSE_FIRST")
        cc.sends_nothing(until=us(2))
        cc.passes(us(5))
        cc.sends("READ_RESPONSE_MIDDLE")
        cc.sends("READ_RESPONSE_LAST")
        cc.sends_acks(psn=3, msn=2)

    def test_read_responses_take_turns_with_a_send_queue_that_is_never_empty(self, dialogue):
        """A turn that the pace left empty is not the responder's turn gone."""
        cc = self.slowed(dialogue)
        cc.posts(*(write(10 * MTU, wr_id=n) for n in range(9)))
        cc.sends("WRITE_FIRST")
        cc.receives(read_request(0, 4 * MTU))
        names = []
        for _ in range(9):
            cc.passes(cc.now + us(3))
            names += (cc.sends_any().name for _ in range(cc.waiting))
        assert [name.split("_")[0] for name in names[:9]].count("READ") == 4, names

    def test_a_read_request_waits_for_its_turn_like_all_of_the_send_queue(self, dialogue):
        cc = self.slowed(dialogue)
        cc.posts(send(MTU), read(8, wr_id=2))
        cc.sends("SEND_ONLY")
        cc.sends_nothing(until=us(2) - 1)
        cc.passes(us(2))
        cc.sends("READ_REQUEST")

    @pytest.mark.parametrize(("late", "packets"), [(0, 1), (5, 3), (7, 4), (1000, 33)])
    def test_a_late_owner_makes_up_for_it(self, dialogue, late, packets):
        """Two us each; at most for 32 packets, and the one that is due."""
        cc = self.slowed(dialogue, rpg_time_reset=us(10_000))
        cc.posts(*[send(MTU, wr_id=n) for n in range(60)])
        cc.sends("SEND_ONLY")
        cc.now = us(2 + late)  # nobody came to look
        cc.passes(cc.now)
        assert cc.waiting == packets

    def test_n11_a_cnp_is_not_acknowledged_and_moves_no_psn(self, cc):
        cc.receives(CNP, CNP)
        cc.sends_nothing()
        cc.receives(write_only(0, ack_req=True))
        cc.sends_acks(psn=0, msn=1)
        cc.posts(send(8))
        cc.sends("SEND_ONLY", psn=0)
        cc.receives(CNP, at=us(20))
        cc.sends_nothing(until=us(60_000))  # nor is it an answer: the timeout comes
        cc.passes(us(70_000))
        cc.sends("SEND_ONLY", psn=0, why="timeout")

    def test_n11_a_cnp_of_ours_moves_no_psn_either(self, cc):
        cc.posts(send(8))
        cc.sends("SEND_ONLY", psn=0)
        marks(cc, silent(0))
        cc.sends("CNP", psn=0)
        cc.posts(send(8))
        cc.passes(us(1))
        cc.sends("SEND_ONLY", psn=1)
        cc.receives(ack(1, msn=2), write_only(1, ack_req=True))
        cc.sends_acks(psn=1, msn=2)

    def test_an_unpaced_queue_pair_wants_no_waking(self, cc):
        cc.receives(CNP)
        assert cc.device.deadline is None

    def test_counters_say_what_came_and_what_it_did(self, dialogue):
        cc = self.slowed(dialogue, cnps=3)
        marks(cc, silent(0))
        cc.sends("CNP")
        assert {
            name: count
            for name, count in cc.device.counters().items()
            if name.startswith(("np_", "rp_"))
        } == {
            "np_ecn_marked_roce_packets": 1, "np_cnp_sent": 1, "rp_cnp_handled": 3,
            "rp_rate_cuts": 3,
        }  # fmt: skip


class TestUnreliableConnections:
    """UC has no acknowledgements, but marks, CNPs and pace like any connection."""

    def test_both_points_work(self, dialogue):
        uc = dialogue(service="UC", config={"congestion": config()})
        marks(uc, said("WRITE_ONLY", 0, Reth(VA, R_KEY, 8), payload=bytes(8), service="UC"))
        uc.sends("CNP", psn=0)
        uc.receives(CNP)
        uc.posts(*[send(MTU, wr_id=n) for n in range(2)])
        uc.sends("SEND_ONLY", psn=0)
        uc.sends_nothing(until=us(2) - 1)
        uc.passes(us(2))
        uc.sends("SEND_ONLY", psn=1)

    def test_a_long_message_is_paced_packet_by_packet(self, dialogue):
        uc = dialogue(service="UC", config={"congestion": config()})
        uc.receives(CNP)
        uc.posts(send(4 * MTU))
        for n in range(4):
            uc.passes(us(2 * n))
            assert uc.waiting == n + 1

    def test_datagrams_have_none(self, rc):
        with pytest.raises(ValueError, match="connected"):
            rc.device.create_qp(rc.pd, service=Service.UD, config=QpConfig(congestion=config()))


class TestClasses:
    def test_acknowledgements_may_have_a_class_of_their_own(self, dialogue):
        """Field report G10: the classes of ACKs and CNPs are set separately."""
        cc = dialogue(
            family=4,
            config={"congestion": config(), "ack_traffic_class": 10 << 2},
        )
        marks(cc, write_only(0, ack_req=True))
        cc.posts(write(8))
        assert [(opened(raw).name, raw[1]) for _, is_ours, raw in cc.said if is_ours] == [
            ("CNP", 0xC2),
            ("ACKNOWLEDGE", 10 << 2),
            ("WRITE_ONLY", 0),
        ]

    def test_a_port_that_sees_no_marks_takes_no_congestion_control(self):
        device = DatagramDevice(DeviceConfig((bytes(16),)), random.Random(1))
        with pytest.raises(ValueError, match="congestion"):
            device.create_qp(device.alloc_pd(), config=QpConfig(congestion=config()))


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["marked", "plain", "cnp", "marked cnp", "post", "ack", "wait"]),
        st.integers(0, 100),
    ),
    max_size=40,
)


@given(events=EVENTS)
def test_whatever_comes_nothing_raises_and_what_waits_has_its_time(events):
    """The rate stays in its bounds, and every message leaves once, in order."""
    cc = Dialogue(config={"congestion": config(rpg_time_reset=us(5))}, timeout=0)
    psn = posted = 0
    for what, amount in events:
        if what in {"marked", "plain"}:
            marks(cc, silent(psn), tos=CE if what == "marked" else 2)
            psn += 1
        elif what.endswith("cnp"):
            marks(cc, CNP, tos=CE if what == "marked cnp" else 2)
        elif what == "post":
            posted += 1
            cc.posts(send(MTU, wr_id=posted))
        elif what == "ack" and posted:
            cc.receives(ack(posted - 1, msn=posted))
        else:
            cc.passes(cc.now + us(amount))
        deadline = cc.device.deadline
        assert deadline is None or deadline > cc.now
        assert 1_000_000 <= cc.qp.congestion.reaction.rate <= LINE
    cc.passes(cc.now + us(5_000_000))
    sent = [opened(raw).bth.psn for _, is_ours, raw in cc.said if is_ours and is_send(raw)]
    assert sent == list(range(posted))


def is_send(raw):
    return opened(raw).name == "SEND_ONLY"


@pytest.mark.parametrize("loss", [0.0, 0.02])
def test_a_transfer_under_cnps_completes_at_the_rate_that_they_leave(loss):
    """A CNP each 60 us of a run keeps the rate down; without one, nothing is held back."""
    took = []
    for every in (0, 60_000):
        congestion = CongestionConfig(10 * GBIT, PAPER)
        world = World(7, Trouble(loss=loss), config={"congestion": congestion})
        one, two = world.ends
        source = one.device.register(one.qp.pd, 0, 256 * 1024, 0xF)
        target = two.device.register(two.qp.pd, 0, 256 * 1024, 0xF)
        source.view[:] = random.Random(3).randbytes(256 * 1024)
        one.qp.post_send(
            SendWr(
                1, WrOpcode.RDMA_WRITE, (Sge(0, 256 * 1024, source.l_key),), 0, target.r_key
            ),
            0,
        )
        next_cnp = [0]

        def slow_down(end, now, every=every, next_cnp=next_cnp, one=one):
            if every and end is one and now >= next_cnp[0]:
                next_cnp[0] = now + every
                one.qp.receive_cnp(now)

        world.run(after_turn=lambda end, world=world, act=slow_down: act(end, world.now))
        assert target.view[:] == source.view[:]
        took.append(world.now)
    assert took[1] > 3 * took[0]


def test_every_row_has_a_test():
    folder = Path(__file__).parent
    switch = folder.parents[2] / "netem" / "switch" / "test_congestion_rows.py"
    files = [folder / "test_reaction.py", folder / "test_dialogues.py", switch]
    found = {
        int(number)
        for file in files
        for number in re.findall(r"def test_n(\d+)_", file.read_text())
    }
    assert found == set(range(1, 12))
