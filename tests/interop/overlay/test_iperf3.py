"""TCP and UDP of an ordinary program, from site to site, through the tunnel of a lab."""

import json
from contextlib import contextmanager

import pytest

from tests.labs.commands import captured, fabriclab, start

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.needs("netns", "tap", "iperf3"),
]

NAME = "two-sites-overlay"
FIBRE = {"t2-p0-0:e1", "t2-p0-1:e1"}
SIZE = 500_000


@contextmanager
def serving(place):
    """Run the server for one test on h2, from when it listens."""
    argv = ("exec", "--lab", NAME, "h2", "iperf3", "-s", "-1", "--forceflush")
    with start(*argv, cwd=place) as server:
        said = next((line for line in server.stdout if "listening" in line), "")
        assert said, server.stderr.read()
        yield
        server.communicate(timeout=60)


def received(place, *argv):
    """Send from h0 to h2; return what iperf3 says of the receiving end."""
    with serving(place):
        argv = ("iperf3", "-c", "h2", "-n", str(SIZE), "--json", *argv)
        ran = fabriclab("exec", "--lab", NAME, "h0", *argv, cwd=place)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads(ran.stdout)["end"]


def test_iperf3_through_the_tunnel_of_a_lab(tmp_path):
    argv = ("--set", "defaults.host.stack=kernel", "--out", tmp_path / "run")
    ran = fabriclab("up", NAME, *argv, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    try:
        # What is on its way when the last byte leaves is not counted, and cut off.
        tcp = received(tmp_path)["sum_received"]["bytes"]
        udp = received(tmp_path, "-u", "-b", "2M", "-l", "1200")["sum"]
    finally:
        down = fabriclab("down", NAME, cwd=tmp_path)
    assert down.returncode == 0, down.stdout + down.stderr
    datagrams = udp["packets"] - udp["lost_packets"]
    assert tcp > SIZE / 10
    assert datagrams > 100
    data = [f.frame for f in captured(tmp_path / "run") if f.port in FIBRE]
    tunnelled = [frame for frame in data if frame[54 + 8] == 4 and 51820 in udp_ports(frame)]
    assert sum(map(len, tunnelled)) > tcp + datagrams * 1200, "both went through it"
    assert not any(frame[20] == 6 for frame in data), "and nothing beside it"


def udp_ports(frame):
    """Return source and destination port of a frame of UDP over IPv6."""
    return {int.from_bytes(frame[at : at + 2], "big") for at in (54, 56)}
