"""The driver's order and bytes: whatever the kernel hands over comes out at the other side."""

import random

import pytest

from netem.host.tunnel import TunnelMachine
from netem.impair.schedule import NOTHING
from netem.overlay.driver import TunnelDriver
from netem.overlay.outer import SEGMENTS, TRAIN_BYTES, Arrived, Sent
from netem.overlay.segments import cut
from netem.sockets.tun import Outbound
from tests.netem.overlay.test_segments import run
from tests.transports.overlay.test_runs import pair
from tests.transports.overlay.world import ip
from transports.clock import S


class FakeTun:
    """Keeps what the kernel would receive; can refuse what is joined."""

    send_drops = 0

    def __init__(self, *, has_offloads=False, takes_joined=True):
        self.has_offloads = has_offloads
        self.takes_joined = takes_joined
        self.is_down = False
        self.refused = 0
        self.packets = []
        self.reads = []  # what each `receive` returns

    def fileno(self):
        return 3

    def receive(self):
        return self.reads.pop(0) if self.reads else []

    def send(self, *parts, header=None):
        if self.is_down:
            return False
        if header is None:
            self.packets.append(b"".join(parts))
            return True
        whole = b"".join(parts)
        if self.takes_joined:
            self.packets.append((whole, header))
        else:
            self.refused += 1
        return self.takes_joined


class FakeOuter:
    """Keeps trains; full after so many."""

    port = 51820

    def __init__(self, room=10_000, path=1500):
        self.trains, self.room, self.path = [], room, path
        self.fragments = False
        self.counters = {}

    def filenos(self):
        return [4]

    def receive_drops(self):
        return 0

    def path_mtu(self, _to):
        return self.path

    def send(self, train):
        if not self.room:
            return Sent.FULL
        self.room -= 1
        self.trains.append(train)
        return Sent.YES


class FakeTurns:
    def __init__(self):
        self.wants = {}

    def want(self, fd, *, readable=True, writable=False):
        self.wants[fd] = readable, writable


class Rig:
    """A driver at each end of a session; what leaves one arrives at the other."""

    def __init__(self, *, has_offloads=False, mtu=1420, **options):
        self.world = pair(mtu=mtu)
        self.outer = FakeOuter(**options)
        self.turns = FakeTurns()
        self.tun = FakeTun(has_offloads=has_offloads)
        self.inner = FakeTun()
        self.sender = self.driver(self.world.a, self.inner, self.outer, self.turns)
        self.receiver = self.driver(self.world.b, self.tun, FakeOuter(), FakeTurns())

    @staticmethod
    def driver(node, tun, outer, turns):
        machine = TunnelMachine("n", node.tunnel, {})
        return TunnelDriver(machine, tun, outer, turns, agenda=NOTHING, tell=lambda _: None)

    def sends(self, *reads):
        self.inner.reads += reads
        self.sender._take([3])
        self.sender._receive(self.world.now)
        self.sender._transmit(self.world.now)

    def arrives(self, *, joined=True):
        """Let what has left arrive, in trains or one by one; return what was inside."""
        for train in self.outer.trains:
            data = memoryview(b"".join(train.parts))
            size = train.segment_size if joined else len(data)
            steps = range(0, len(data), train.segment_size) if not joined else (0,)
            for at in steps:
                one = data if joined else data[at : at + train.segment_size]
                came = Arrived(one, min(size, len(one)), self.world.a.endpoint, None, 0)
                self.receiver._arrived.append(came)
        self.outer.trains.clear()
        self.receiver._receive(self.world.now)
        self.receiver._transmit(self.world.now)
        return self.tun.packets


def plain(size, fill=b"x", tos=0, to="10.0.0.2", source="10.0.0.1"):
    return Outbound(memoryview(ip(source, to, size, fill=fill, tos=tos)))


def piece(payload, mss=1380):
    """Return a run of TCP between the world's two nodes."""
    whole = run(4, payload, mss, options=b"")
    raw = bytearray(whole.packet)
    raw[12:20] = bytes([10, 0, 0, 1, 10, 0, 0, 2])
    return whole._replace(packet=memoryview(bytes(raw)))


def mixture(seed):
    """Return what a kernel may hand over in one turn, in any order."""
    rng = random.Random(seed)
    kinds = [
        lambda: plain(1420, fill=bytes([rng.randrange(256)])),
        lambda: plain(rng.randrange(28, 1421), tos=rng.choice([0, 0, 2])),
        lambda: piece(rng.randbytes(rng.randrange(1, 20_000))),
        lambda: plain(100, to="10.9.9.9"),  # nobody's
    ]
    return [
        outbound
        for _ in range(12)
        for outbound in [rng.choice(kinds)()] * rng.choice([1, 1, 5])
    ]


def inside(outbounds):
    """Return the packets of a mixture that have a peer, in order."""
    found = []
    for outbound in outbounds:
        packets = cut(outbound) if outbound.gso_type else [outbound.packet]
        found += [bytes(p) for p in packets if bytes(p[16:20]) == bytes([10, 0, 0, 2])]
    return found


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("joined", [True, False])
def test_what_goes_in_comes_out_in_its_order(seed, joined):
    rig, outbounds = Rig(), mixture(seed)
    rig.sends(outbounds)
    assert rig.arrives(joined=joined) == inside(outbounds)
    for train in rig.outer.trains:
        assert len(b"".join(train.parts)) <= min(TRAIN_BYTES, SEGMENTS * train.segment_size)


def test_pieces_leave_in_full_trains_that_may_hold_the_next_one_s_beginning():
    rig = Rig()
    rig.sends([piece(bytes(47 * 1380))] * 3)
    most = TRAIN_BYTES // (1420 + 32)
    counts = [len(train.parts) // 2 for train in rig.outer.trains]
    assert counts == [most, most, most, 3 * 47 - 3 * most]


@pytest.mark.parametrize("size", [63_900, 64_100, 65_400])
def test_datagrams_about_as_large_as_a_train_go_singly(size):
    rig = Rig(mtu=65_535, path=65_535)
    rig.sends([plain(size), plain(size, b"y"), plain(size, b"z")])
    assert [len(b"".join(train.parts)) for train in rig.outer.trains] == 3 * [
        -(-size // 16) * 16 + 32
    ]
    assert rig.arrives() == [bytes(plain(size, fill).packet) for fill in (b"x", b"y", b"z")]


def test_what_is_joined_is_one_piece_for_the_kernel():
    rig = Rig(has_offloads=True)
    payload = random.Random(1).randbytes(20_000)
    rig.sends([piece(payload)])
    ((whole, header),) = rig.arrives()
    assert whole[40:] == payload
    assert len(header) == 10


def test_trap_47_a_kernel_that_takes_nothing_joined_is_asked_once():
    rig = Rig(has_offloads=True)
    rig.tun.takes_joined = False
    rig.sends([piece(bytes(5000))])
    assert len(rig.arrives()) == 4  # one by one
    rig.sends([piece(bytes(5000))])
    assert len(rig.arrives()) == 8
    assert rig.tun.refused == 1


def test_joining_goes_on_after_an_interface_was_down_and_nothing_taken_singly_is_lost():
    rig = Rig(has_offloads=True)
    rig.tun.is_down, rig.tun.takes_joined = True, False
    rig.sends([piece(bytes(20_000))])
    assert rig.arrives() == []
    rig.tun.is_down, rig.tun.takes_joined = False, True
    rig.sends([piece(bytes(20_000))])
    assert len(rig.arrives()) == 1


@pytest.mark.parametrize("rubbish", [b"\x70" + bytes(19), b"\x60" + bytes(30), b"\x45", b""])
def test_rubbish_that_a_program_writes_to_the_interface_ends_nothing(rubbish):
    """An AF_PACKET socket on it may send anything."""
    rig = Rig()
    rig.sends([Outbound(memoryview(rubbish))] * 2, [plain(100)])
    rig.sends([plain(100)])
    assert rig.arrives()[-1] == bytes(plain(100).packet)


def test_a_full_buffer_stops_the_tun_and_loses_nothing():
    rig = Rig(room=1)
    outbounds = [plain(1000 + 100 * n) for n in range(4)]
    rig.sends(outbounds)
    assert rig.turns.wants == {3: (False, False), 4: (True, True)}
    rig.sender._take([3])  # is left alone
    rig.outer.room = 100
    rig.sends([])
    assert rig.turns.wants == {3: (True, False), 4: (True, False)}
    assert rig.arrives() == inside(outbounds)


def test_no_more_is_read_than_can_leave():
    rig = Rig(room=1)
    reads = [[plain(1000 + 100 * number)] for number in range(5)]
    rig.sends(*reads)
    assert rig.inner.reads == reads[3:]  # one has left, and one may have company
    rig.outer.room = 100
    rig.sends()  # what waited leaves
    rig.sends()
    assert rig.inner.reads == []
    assert rig.arrives() == inside([outbound for read in reads for outbound in read])


def test_one_turn_reads_eight_times_and_no_more():
    rig = Rig()
    rig.sends(*[[piece(bytes(5000))]] * 10)
    assert len(rig.inner.reads) == 2
    rig.sends()
    assert len(rig.arrives()) == 10 * 4


def test_trap_69_when_keys_are_renewed_under_load_nothing_is_lost():
    rig = Rig()
    rig.world.now += 120 * S
    rig.sends([piece(bytes(47 * 1380))] * 3)  # more than a peer's queue holds, at once
    assert len(rig.arrives()) == 3 * 47
    assert rig.world.a.refused() == {}


@pytest.mark.parametrize("outbounds", [[piece(bytes(9000))], [plain(1420)] * 5])
def test_runs_that_do_not_fit_the_path_are_not_sent(outbounds):
    rig = Rig(path=1400)
    rig.sends(outbounds)
    assert all(
        train.segment_size < 1400 - 60 for train in rig.outer.trains
    )  # the rest of a piece
    assert rig.sender.counters()["overlay.packets_too_big"] >= 5
