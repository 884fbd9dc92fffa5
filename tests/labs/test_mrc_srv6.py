"""MRC over SRv6 with kernels in the middle: what they make of a packet, byte by byte.

The lab is run on sockets, so the spines are Linux routers with seg6local routes, and once more
in virtual time, where our switch stands in for them. What is expected is said here in lines of
its own: RFC 9800, 4.1.1 (the first uSID goes, zeros come in), hop limit less one, nothing else.
"""

import zlib
from collections import Counter

import pytest

from tests.labs.commands import captured, fabriclab, inside, is_trimmed

pytestmark = [pytest.mark.slow, pytest.mark.needs("netns", "seg6")]

KERNELS = ("t1-p0-0", "t1-p0-1", "t1-p1-0", "t1-p1-1")


def run(verb, tmp_path):
    out = tmp_path / verb
    ran = fabriclab(verb, "mrc-srv6", "--out", out, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return captured(out)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mrc-srv6")
    return run("run", folder), run("sim", folder)


def by_port(frames):
    ports = {}
    for frame in frames:
        ports.setdefault(frame.port, []).append(bytes(frame.frame))
    return ports


def peer_ports(router):
    """The port of each T0 towards a T1 of a Clos fabric, and the T1's own towards the other."""
    _, plane, number = router.split("-")
    up = int(number) + 1  # behind the port to the host
    return {
        f"t0-{plane}-0:e{up}": f"{router}:e1",
        f"t0-{plane}-1:e{up}": f"{router}:e0",
    }


def after(packet):
    """What a router of the way sends for an IPv6 packet."""
    destination = packet[24:28] + packet[30:40] + bytes(2)
    return packet[:7] + bytes([packet[7] - 1]) + packet[8:24] + destination + packet[40:]


@pytest.mark.parametrize("which", [0, 1], ids=["kernel", "ours"])
def test_a_router_changes_the_destination_and_the_hop_limit_and_nothing_else(runs, which):
    ports = by_port(runs[which])
    crossed = 0
    for router in KERNELS:
        for before, behind in peer_ports(router).items():
            entered = Counter(after(frame[14:]) for frame in ports[before])
            left = Counter(frame[14:] for frame in ports[behind])
            assert entered == left, (before, behind)
            crossed += left.total()
    assert crossed > 300


def outer_headers(frames):
    """Next header, hop limit and addresses of what h0 and h1 write, by port."""
    found = {}
    for frame in frames:
        found.setdefault(frame.port, set()).add(bytes(frame.frame[14 + 6 : 14 + 40]))
    return found


def test_kernels_and_our_switch_make_the_same_outer_headers_at_every_hop(runs):
    kernel, ours = map(outer_headers, runs)
    assert kernel == ours
    assert len(kernel) == 4 * 2 + 2 * 2 * 4  # hosts' links and those between switches
    destinations = {header[18:34].hex() for header in kernel["h0:p0"]}
    assert destinations == {
        f"fcbbbb000100{t1}01010800".ljust(32, "0") for t1 in ("0200", "0201")
    }


def test_the_icrc_inside_is_right_at_every_hop(runs):
    """mrc-emu/1, 12.3: over the inner packet, which no router touches."""
    checked = 0
    for frames in runs:
        for frame in frames:
            if is_trimmed(frame):
                continue
            packet = bytearray(inside(bytes(frame.frame))[14:])
            packet, there = packet[:-4], bytes(packet[-4:])
            if packet[6] != 17:
                continue
            packet[0] = 0x6F
            for at in (1, 2, 3, 7, 46, 47, 52):
                packet[at] = 0xFF
            assert zlib.crc32(b"\xff" * 8 + packet).to_bytes(4, "little") == there
            checked += 1
    assert checked > 2000
    assert checked > 0.99 * sum(map(len, runs)), "trimmed ones apart, everything is MRC"
