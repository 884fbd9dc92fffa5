"""The packet socket: bytes in, the same bytes out, and what is told of what was lost."""

import os
import select
import subprocess

import pytest

from netem.sockets.packet import BATCH, PacketSocket
from tests.netem.sockets.pairs import veth
from tests.sandboxed import in_sandbox

pytestmark = pytest.mark.needs("netns")

MACS = bytes.fromhex("0200 0000 0002 0200 0000 0001")
TAG = bytes.fromhex("8100 6007")
OTHER_TAG = bytes.fromhex("88a8 2005")
IPV6 = b"\x86\xdd"
PLAIN = MACS + IPV6 + bytes(range(100))
TAGGED = MACS + TAG + IPV6 + bytes(range(100))
FRAMES = {
    "IPv6": PLAIN,
    "of the shortest kind": MACS + IPV6,
    "of no known kind": MACS + b"\x88\xb5" + b"x" * 46,
    "broadcast": b"\xff" * 6 + MACS[6:] + b"\x08\x06" + bytes(28),
    "to somebody else": b"\x02\x77" * 3 + MACS[6:] + IPV6 + b"x" * 50,
    "802.1Q": TAGGED,
    "802.1Q, priority only": MACS + bytes.fromhex("8100 e000") + IPV6 + bytes(50),
    "802.1ad": MACS + OTHER_TAG + IPV6 + bytes(50),
    "802.1ad around 802.1Q": MACS + OTHER_TAG + TAG + IPV6 + bytes(50),
    "802.3 with a length": MACS + b"\x00\x10" + bytes(46),
    "as long as the MTU allows": MACS + IPV6 + os.urandom(1500),
    "as long as that, with a tag": MACS + TAG + IPV6 + os.urandom(1500),
}


def on_a_link(body, mtu=1500):
    """Call body(a, b) with a packet socket on each end of a new link."""

    def inner():
        veth(mtu)
        with PacketSocket("va") as a, PacketSocket("vb") as b:
            return body(a, b)

    return in_sandbox(inner)


def test_every_frame_arrives_as_it_was_sent():
    def send_all(a, b):
        arrived = {}
        for name, frame in FRAMES.items():
            assert a.send(frame)
            arrived[name] = [bytes(found) for found in b.receive()]
        return arrived

    arrived = on_a_link(send_all)
    assert arrived == {name: [frame] for name, frame in FRAMES.items()}


def test_tagged_and_plain_frames_keep_their_order():
    sent = [PLAIN + b"1", TAGGED + b"2", TAGGED + b"3", PLAIN + b"4", TAGGED + b"5"]

    def send(a, b):
        for frame in sent:
            a.send(frame)
        return [bytes(frame) for frame in b.receive()]

    assert on_a_link(send) == sent


def test_a_batch_has_a_bound_and_leaves_the_rest():
    def send(a, b):
        for _ in range(BATCH + 10):
            a.send(PLAIN)
        return len(b.receive(5)), len(b.receive()), len(b.receive()), len(b.receive())

    assert on_a_link(send) == (5, BATCH, 5, 0)


def test_it_is_readable_exactly_while_a_frame_waits():
    def watch(a, b):
        seen = []
        for frame in (PLAIN, TAGGED):
            seen.append(bool(select.select([b], [], [], 0)[0]))
            a.send(frame)
            seen.append(bool(select.select([b], [], [], 0)[0]))
            b.receive()
        return [*seen, bool(select.select([b], [], [], 0)[0])]

    assert on_a_link(watch) == [False, True, False, True, False]


def test_what_is_sent_on_the_interface_itself_is_not_received():
    def send(a, b):
        a.send(PLAIN)
        a.send(TAGGED)
        return len(a.receive()), len(b.receive())

    assert on_a_link(send) == (0, 2)


def test_a_frame_longer_than_the_mtu_is_refused_and_counted():
    def send(a, b):
        return a.send(PLAIN + bytes(1500)), a.oversized, b.receive()

    assert on_a_link(send) == (False, 1, [])


def test_a_link_that_is_down_drops_and_counts_and_comes_back():
    def flap(a, b):
        subprocess.run(["ip", "link", "set", "va", "down"], check=True)
        told = a.send(PLAIN), a.send_drops, a.receive(), b.receive()
        subprocess.run(["ip", "link", "set", "va", "up"], check=True)
        while not a.send(PLAIN):
            pass
        return told, [bytes(frame) for frame in b.receive()]

    assert on_a_link(flap) == ((False, 1, [], []), [PLAIN])


def test_as_many_frames_wait_as_it_says_and_drops_beyond_are_counted():
    """Field report P08: what was lost is told."""

    def flood():
        veth(1500)
        with PacketSocket("va") as a, PacketSocket("vb", buffer=1 << 16) as b:
            frame = PLAIN + bytes(900)
            promised = b.frames_held(len(frame))
            sent = 4 * promised
            for _ in range(sent):
                a.send(frame)
            waiting = 0
            while found := len(b.receive()):
                waiting += found
            return promised, sent, waiting, b.receive_drops(), b.receive_drops()

    promised, sent, waiting, drops, again = in_sandbox(flood)
    assert promised >= 32
    assert promised <= waiting < 2 * promised
    assert drops == sent - waiting
    assert again == drops


def test_a_burst_of_2000_frames_is_not_lost():
    """Field report P08."""

    def burst(a, b):
        for n in range(2000):
            a.send(PLAIN + n.to_bytes(2, "big"))
        found = []
        while frames := b.receive():
            found += [int.from_bytes(frame[-2:], "big") for frame in frames]
        return found == list(range(2000)), b.frames_held(len(PLAIN)) >= 2000

    whole, promised = on_a_link(burst)
    assert whole or not promised


def test_an_interface_that_is_not_there_is_an_os_error():
    def open_it():
        try:
            PacketSocket("nonesuch")
        except OSError as error:
            return error.errno

    assert in_sandbox(open_it) == 19


def test_the_ordinary_user_gets_what_the_host_allows(ordinary_user):
    """Buffers are bounded by rmem_max there: the promise must follow."""
    code = """
from tests.netem.sockets.test_packet import *
flooded = []
def flood(a, b):
    promised = b.frames_held(1200)
    frame = PLAIN + bytes(1000)
    for _ in range(promised):
        a.send(frame)
    waiting = 0
    while found := len(b.receive()):
        waiting += found
    return promised == waiting
assert on_a_link(flood)
"""
    done = ordinary_user.run(ordinary_user.python, "-c", code)
    assert done.returncode == 0, done.stderr
