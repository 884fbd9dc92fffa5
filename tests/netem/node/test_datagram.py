"""The datagram driver on fake sockets: trains, impairment of payloads, and full buffers."""

import socket
from contextlib import contextmanager
from ipaddress import ip_address

import pytest
import trio
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from netem.clock import RealClock
from netem.impair.egress import Egress
from netem.impair.model import Impairment, RandomLoss
from netem.impair.schedule import Agenda
from netem.node.datagram import (
    BYTES,
    CLOCKS_APART,
    DATAGRAMS,
    ON_THE_WAY,
    DatagramDriver,
    DatagramEnd,
)
from netem.node.turns import Turns
from netem.node.wrapping import HEADERS, Wrapping
from netem.sockets.timer import Timer
from netem.sockets.udp import Received
from netem.topology.errors import LabError
from netem.topology.plan import ChangePlan, FaultPlan, Where
from tests.netem.node.lab import PAIR, plan_of
from tests.netem.node.rig import SEED, Recorded, Script
from transports.clock import MS
from transports.roce.datagram import Datagram

PATIENCE_S = 5
OWN, PEER = ip_address("fd00::1").packed, ip_address("fd00::2").packed
SRC_PORT = 0xC123


class FakeSocket:
    """A DatagramSocket: the test puts in what arrives and looks at what was sent."""

    def __init__(self):
        self._near, self.far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._near.setblocking(False)
        self.far.setblocking(False)
        self.send_drops = 0
        self.lost = 0
        self.sent = []
        self.segment = None  # of what arrives: None for single datagrams
        self.is_full = False

    def fileno(self):
        return self._near.fileno()

    def receive(self):
        data = self._near.recv(65536)
        return Received(memoryview(data), self.segment or len(data), "fd00::2", 0xC001, 0)

    def receive_batch(self):
        try:
            return [self.receive()]
        except BlockingIOError:
            return []

    def receive_drops(self):
        return self.lost

    def send(self, data, segment_size, address, port, traffic_class=0):
        if self.is_full:
            return False
        self.sent.append((bytes(data), segment_size, address, port, traffic_class))
        return True

    def close(self):
        self._near.close()
        self.far.close()


class FakeSockets:
    def __init__(self):
        self.receiver = FakeSocket()
        self.senders = {}

    def sender(self, src_port):
        if src_port not in self.senders:
            self.senders[src_port] = FakeSocket()
        return self.senders[src_port]

    def all(self):
        return [self.receiver, *self.senders.values()]


class DatagramScript(Script):
    """A datagram machine that does what the test has laid out."""

    def receive_datagram(self, port, payload, *rest):
        self.received.append((port, bytes(payload), None, *rest))

    def receive_train(self, port, buffer, size, *rest):
        self.received.append((port, bytes(buffer), size, *rest))

    def transmit_datagrams(self, now):
        while self.to_send:
            yield "p0", self.to_send.popleft()


def train(*payloads, size=None, psn=0, transmission=1, why="", traffic_class=0):
    data, size = b"".join(payloads), size or len(payloads[0])
    return Datagram(
        PEER, SRC_PORT, data, size, len(payloads), traffic_class, 7, psn, transmission, why
    )


class DatagramRig:
    def __init__(self, egress=None, *, ingress=None, faults=(), changes=()):
        self.machine, self.recorded = DatagramScript(), Recorded()
        self.sockets, self.told = FakeSockets(), []
        self.clock = RealClock.starting_now(1)
        self.timer = Timer()
        self.turns = Turns(self.timer)
        node = plan_of(PAIR, host_mode="datagram").node("h0")
        self.end = DatagramEnd(
            "p0",
            "h0:p0",
            "h1:p0",
            self.sockets,
            Egress("h0:p0", "h1:p0", egress or Impairment(), SEED, faults),
            wrapping=Wrapping(node, node.ports[0], OWN),
            own_ip=OWN,
            ingress=ingress and Egress("h1:p0", "h0:p0", ingress, SEED),
            recorder=self.recorded,
            peer_index=1,
        )
        self.driver = DatagramDriver(
            self.machine,
            [self.end],
            self.turns,
            recorder=self.recorded,
            agenda=Agenda("h0", changes),
            tell=self.told.append,
        )
        self.driver.clock = self.clock
        self.turns.watch(self.sockets.receiver.fileno())

    @property
    def sent(self):
        return [sent for sock in self.sockets.senders.values() for sent in sock.sent]

    def send(self, *datagrams):
        self.machine.to_send.extend(datagrams)
        self.driver.turn([])

    async def turn(self):
        due = None if self.driver.due is None else self.clock.wall(self.driver.due)
        self.driver.turn(await self.turns.next(due, at_once=self.driver.has_more))

    async def turn_until_empty(self):
        """Receive something, so that the driver knows when nothing was left."""
        self.sockets.receiver.far.send(b"early")
        while not self.end.empty_at:
            await self.turn()
        self.recorded.notes.clear()
        self.machine.received.clear()

    def close(self):
        for sock in self.sockets.all():
            sock.close()
        self.turns.close()
        self.timer.close()


@contextmanager
def rigged(*args, **kwargs):
    rig = DatagramRig(*args, **kwargs)
    try:
        with trio.fail_after(PATIENCE_S):
            yield rig
    finally:
        rig.close()


async def test_a_train_goes_out_whole_from_its_source_port():
    with rigged() as rig:
        rig.send(train(b"a" * 100, b"b" * 100, b"c" * 50, size=100, traffic_class=2))
        assert rig.sent == [(b"a" * 100 + b"b" * 100 + b"c" * 50, 100, "fd00::2", 4791, 2)]
        assert list(rig.sockets.senders) == [SRC_PORT]


async def test_a_train_counts_as_its_packets_with_their_headers():
    with rigged() as rig:
        rig.send(train(b"a" * 100, b"b" * 100))
        [report] = rig.driver.directions()
        assert (report.frames, report.bytes) == (2, 200 + 2 * HEADERS)


async def test_what_the_kernel_sends_is_not_recorded_here():
    with rigged() as rig:
        rig.send(train(b"a" * 100))
        assert rig.recorded.frames == []


async def test_a_datagram_and_a_train_are_received_as_they_came():
    with rigged() as rig:
        rig.sockets.receiver.far.send(b"one")
        await rig.turn()
        rig.sockets.receiver.segment = 3
        rig.sockets.receiver.far.send(b"onetwo")
        await rig.turn()
        assert [got[:6] for got in rig.machine.received] == [
            ("p0", b"one", None, PEER, 0xC001, OWN),
            ("p0", b"onetwo", 3, PEER, 0xC001, OWN),
        ]


async def test_with_an_impairment_each_packet_of_a_train_passes_on_its_own():
    with rigged(Impairment(delay=MS)) as rig:
        rig.send(train(b"a" * 100, b"b" * 100, b"c" * 50, size=100))
        assert rig.sent == []
        while len(rig.sent) < 3:
            await rig.turn()
        assert [data for data, *_ in rig.sent] == [b"a" * 100, b"b" * 100, b"c" * 50]
        assert [size for _, size, *_ in rig.sent] == [100, 100, 50]


async def test_what_is_lost_is_recorded_as_the_frame_that_it_would_have_been():
    with rigged(Impairment(loss=RandomLoss(1.0))) as rig:
        rig.send(train(b"payload!", transmission=2, why="timeout"))
        assert rig.sent == []
        [(_, port, raw, comment, killed)] = rig.recorded.frames
        assert (port, killed) == (0, True)
        assert comment.startswith("dropped")
        assert "retransmission: timeout" in comment
        assert comment.endswith("reconstructed")
        frame = Ether(raw)
        assert (frame.src, frame.dst) == ("02:00:00:00:00:01", "02:00:00:00:00:02")
        assert (frame[IPv6].src, frame[IPv6].dst) == ("fd00::1", "fd00::2")
        assert (frame[UDP].sport, frame[UDP].dport) == (SRC_PORT, 4791)
        assert bytes(frame[UDP].payload) == b"payload!"


async def test_a_reconstructed_frame_has_the_checksum_that_scapy_works_out():
    with rigged(Impairment(loss=RandomLoss(1.0))) as rig:
        rig.send(train(b"odd size!"))
        [(_, _, raw, *_)] = rig.recorded.frames
        again = Ether(raw)
        del again[UDP].chksum
        del again[UDP].len
        del again[IPv6].plen
        assert bytes(again) == raw


async def test_a_corrupted_packet_leaves_with_one_bit_of_its_payload_changed():
    """The headers are the kernel's to make: no bit of theirs can be wrong."""
    with rigged(Impairment(corrupt=1.0)) as rig:
        rig.send(train(bytes(100)))
        [(data, *_)] = rig.sent
        assert int.from_bytes(data, "big").bit_count() == 1
        assert rig.driver.directions()[0].corrupted == 1


async def test_a_later_impairment_spares_the_headers_too():
    change = ChangePlan(index=0, at=0, on="h0:p0", set=Impairment(corrupt=1.0, corrupt_from=14))
    with rigged(changes=[change]) as rig:
        rig.send(train(bytes(4)))
        [(data, *_)] = rig.sent
        assert int.from_bytes(data, "big").bit_count() == 1


async def test_a_mark_becomes_the_traffic_class_of_what_is_sent():
    fault = FaultPlan(index=0, do="mark", on="h0:p0", where=Where(proto="any"))
    with rigged(faults=[fault]) as rig:
        rig.send(train(bytes(20), traffic_class=0b10))
        assert rig.sent[0][4] == 0b11


def said(rig):
    return [(payload, comment) for _, _, payload, comment, _ in rig.recorded.notes]


async def test_a_retransmission_is_noted_segment_by_segment_and_first_sendings_are_not():
    """The kernel sends them, so the comments of their frames have to come from us."""
    with rigged() as rig:
        rig.send(train(b"first" * 4))
        rig.send(train(b"a" * 20, b"b" * 20, b"c" * 10, size=20, transmission=2, why="NAK"))
        why = "retransmission: NAK"
        assert said(rig) == [(b"a" * 20, why), (b"b" * 20, why), (b"c" * 10, why)]
        assert len(rig.sent) == 2


async def test_a_note_is_in_the_spool_before_its_frame_is_with_the_kernel():
    with rigged() as rig:
        sender = rig.sockets.sender(SRC_PORT)
        sender.send = lambda *_: len(rig.recorded.notes) == flushes[-1] == 1
        flushes = []
        rig.recorded.flush = lambda: flushes.append(len(rig.recorded.notes))
        rig.send(train(bytes(20), transmission=2, why="timeout"))
        assert not rig.end.outgoing


async def test_a_note_lies_between_what_left_before_and_its_own_frame():
    with rigged() as rig:
        rig.send(train(bytes(20)))
        before = rig.clock.now()
        rig.send(train(bytes(20), transmission=2, why="timeout"))
        [(at, port, _, _, lasting)] = rig.recorded.notes
        assert before - CLOCKS_APART <= at + 1 < rig.clock.now()
        assert (port, lasting) == (0, 0)


async def test_what_was_changed_is_noted_by_the_bytes_that_leave():
    with rigged(Impairment(corrupt=1.0)) as rig:
        rig.send(train(bytes(100)))
        [(data, *_)] = rig.sent
        [(payload, comment)] = said(rig)
        assert payload == data != bytes(100)
        assert comment.startswith("corrupted bit")


async def test_of_a_packet_and_its_duplicate_the_second_is_the_duplicate():
    with rigged(Impairment(duplicate=1.0)) as rig:
        rig.send(train(b"x" * 20))
        assert said(rig) == [(b"x" * 20, ""), (b"x" * 20, "duplicated by duplicate 100%")]


async def test_a_packet_that_still_waits_is_told_from_the_same_sent_again():
    with rigged() as rig:
        rig.sockets.sender(SRC_PORT).is_full = True
        rig.send(
            train(b"x" * 20), train(b"y" * 20), train(b"x" * 20, transmission=2, why="NAK")
        )
        assert said(rig) == [(b"x" * 20, ""), (b"x" * 20, "retransmission: NAK")]
        rig.send()
        assert len(said(rig)) == 2


async def test_what_nothing_happened_to_is_not_noted():
    with rigged(Impairment(delay=MS)) as rig:
        rig.send(train(b"a" * 20, b"b" * 20))
        while len(rig.sent) < 2:
            await rig.turn()
        assert said(rig) == []


async def test_what_an_ingress_kills_is_noted_at_the_kernel_end_for_the_time_it_came():
    with rigged(ingress=Impairment(loss=RandomLoss(1.0))) as rig:
        await rig.turn_until_empty()
        before = rig.clock.now()
        rig.sockets.receiver.far.send(b"payload!")
        while not rig.recorded.notes:
            await rig.turn()
        assert rig.machine.received == []
        [(at, port, payload, comment, lasting)] = rig.recorded.notes
        assert (port, payload) == (1, b"payload!")
        assert comment == "dropped by loss 100% (random) on arrival"
        # A train's frames all leave before the first arrives: it may have left long before.
        assert at <= rig.end.empty_at - ON_THE_WAY
        assert before <= at + lasting <= rig.clock.now() + 2 * CLOCKS_APART


async def test_an_ingress_that_changes_bytes_is_noted_by_those_that_came():
    with rigged(ingress=Impairment(corrupt=1.0)) as rig:
        rig.sockets.receiver.far.send(bytes(30))
        while not rig.machine.received:
            await rig.turn()
        assert rig.machine.received[0][1] != bytes(30)
        [(payload, comment)] = said(rig)
        assert payload == bytes(30)
        assert comment.startswith("corrupted bit")


async def test_a_frame_and_its_duplicate_at_an_ingress_are_one_frame_to_the_sniffer():
    with rigged(ingress=Impairment(duplicate=1.0, corrupt=1.0)) as rig:
        rig.sockets.receiver.far.send(bytes(30))
        while len(rig.machine.received) < 2:
            await rig.turn()
        [(_, comment)] = said(rig)
        words = [phrase.partition(" ")[0] for phrase in comment.split("; ")]
        assert words == ["corrupted", "duplicated"]


async def test_a_full_socket_loses_nothing_and_stops_only_the_sending():
    with rigged() as rig:
        rig.sockets.sender(SRC_PORT).is_full = True
        rig.send(train(b"one"), train(b"two"))
        rig.send(train(b"three"))
        assert [bytes(datagram.payload) for datagram in rig.machine.to_send] == [b"three"]
        rig.sockets.receiver.far.send(b"hello")
        while not rig.machine.received:
            await rig.turn()
        rig.sockets.sender(SRC_PORT).is_full = False
        while rig.machine.to_send:
            await rig.turn()
        assert [data for data, *_ in rig.sent] == [b"one", b"two", b"three"]


@pytest.mark.parametrize("size", [4, 60_000])
async def test_a_turn_is_bounded_and_says_that_there_is_more(size):
    with rigged() as rig:
        most = min(DATAGRAMS, -(-BYTES // size))
        rig.send(*[train(bytes(size))] * (most + 5))
        assert rig.driver.has_more
        assert len(rig.sent) == most
        while rig.driver.has_more:
            await rig.turn()
        assert len(rig.sent) == most + 5


async def test_what_a_kernel_end_sends_is_impaired_at_ingress():
    with rigged(ingress=Impairment(delay=MS)) as rig:
        sent = rig.clock.now()
        rig.sockets.receiver.segment = 3
        rig.sockets.receiver.far.send(b"onetwo")
        while len(rig.machine.received) < 2:
            await rig.turn()
        assert [got[1:6] for got in rig.machine.received] == [
            (b"one", None, PEER, 0xC001, OWN),
            (b"two", None, PEER, 0xC001, OWN),
        ]
        assert rig.machine.received[0][-1] >= sent + MS


async def test_counters_of_all_sockets_add_up():
    with rigged() as rig:
        rig.send(train(b"one"))
        rig.sockets.sender(SRC_PORT).send_drops = 2
        rig.sockets.sender(SRC_PORT + 1).send_drops = 3
        rig.sockets.receiver.lost = 4
        assert rig.driver.counters() == {"receive_drops": 4, "send_drops": 5}
        assert rig.driver.peer_drops() == {}, "the sniffer has recorded those"


def test_a_datagram_host_without_an_ipv6_address_is_refused_by_the_plan():
    with pytest.raises(LabError, match="ipv6"):
        plan_of(PAIR, host_mode="datagram", host_family="ipv4")
