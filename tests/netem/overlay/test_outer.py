"""The sockets of a tunnel, on the loopback of a sandbox."""

import errno
import socket

import pytest

from netem.overlay.outer import Outer, Sent, Train
from netem.overlay.paths import Paths, overhead
from tests.netem.overlay.rig import run
from tests.sandboxed import in_sandbox
from transports.clock import S
from transports.overlay.endpoint import Endpoint

HOME = {4: "127.0.0.1:%d", 6: "[::1]:%d"}


def received(outer, count):
    """Return the datagrams that came, each with what is known of it, and their local side."""
    found = []
    for fd in outer.filenos():
        for data, size, source, local, traffic_class in outer.receive(fd):
            found += [
                (bytes(data[at : at + size]), source.port, local, traffic_class)
                for at in range(0, len(data), size)
            ]
    assert len(found) == count
    return found


def trains():
    run("ip", "link", "set", "lo", "up")
    told = {}
    with Outer() as one, Outer() as two:
        for family, home in HOME.items():
            to = Endpoint.parse(home % two.port)
            parts = [bytes([number]) * 100 for number in range(9)] + [b"last"]
            assert one.send(Train(parts, 100, to, 0x8A)) is Sent.YES
            assert one.send(Train([b"alone"], 5, to)) is Sent.YES
            *got, alone = received(two, 11)
            assert [data for data, *_ in got] == parts
            local = to.address
            told[family] = {tuple(rest) for _, *rest in got}, alone
            assert told[family] == ({(one.port, local, 0x8A)}, (b"alone", one.port, local, 0))
    return sorted(told)


@pytest.mark.needs("netns")
def test_a_train_arrives_as_the_datagrams_that_it_was_made_of_over_both_families():
    assert in_sandbox(trains) == [4, 6]


def both():
    run("ip", "link", "set", "lo", "up")
    with Outer() as one, Outer() as two:
        for family, home in HOME.items():
            to = Endpoint.parse(home % two.port)
            assert one.send(Train([bytes([family]) * 500], 500, to)) is Sent.YES
        arrived = [came for fd in two.filenos() for came in two.receive(fd)]
        return [bytes(came.data) for came in arrived]


@pytest.mark.needs("netns")
def test_what_came_to_one_socket_stays_while_the_other_is_read():
    assert in_sandbox(both) == [bytes([4]) * 500, bytes([6]) * 500]


def ports():
    run("ip", "link", "set", "lo", "up")
    with Outer() as one, Outer() as two:
        before = two.port, two.filenos()
        with pytest.raises(OSError, match="in use") as refused:
            two.rebind(one.port)
        assert refused.value.errno == errno.EADDRINUSE
        assert (two.port, two.filenos()) == before
        two.rebind(0)
        assert two.port not in {one.port, before[0]}
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as taken:
            taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            taken.bind(("::", 0))
            with pytest.raises(OSError, match="in use"):  # one family alone is not enough
                Outer(taken.getsockname()[1])
        to = Endpoint.parse(f"127.0.0.1:{two.port}")
        assert one.send(Train([b"x"], 1, to, 0, bytes([192, 0, 2, 9]))) is Sent.YES
        received(two, 1)
        return one.counters


@pytest.mark.needs("netns")
def test_traps_52_and_53_a_port_is_taken_for_both_families_and_a_lost_address_forgotten():
    counters = in_sandbox(ports)
    assert counters["local_forgotten"] == 1


def big():
    run("ip", "link", "set", "lo", "mtu", "1400", "up")
    told = []
    for fragments in (False, True):
        with Outer(fragments=fragments) as one, Outer() as two:
            to = Endpoint.parse(f"127.0.0.1:{two.port}")
            assert one.path_mtu(to) == 1400
            parts = [bytes(1452)] * 3
            told += [one.send(Train([bytes(1372)], 1372, to)), one.send(Train(parts, 1452, to))]
            received(two, 4 if fragments else 1)
    return told


@pytest.mark.needs("netns")
def test_trap_44_what_is_too_big_for_the_path_is_told_or_sent_in_fragments():
    assert in_sandbox(big) == [Sent.YES, Sent.TOO_BIG, Sent.YES, Sent.YES]


def test_limits_follow_what_the_kernel_knows_of_a_path():
    there = Endpoint.parse("192.0.2.1:1")
    path = {there: 1500}
    paths = Paths(path.get, 1420)
    assert overhead(is_ipv4=True) == 60
    assert paths.limit(there, 0) == 1420
    path[there] = 1400
    assert paths.limit(there, 9 * S) == 1420
    paths.forget(there)
    assert paths.limit(there, 9 * S) == 1328  # 1340, but padding would go beyond
    path[there] = 1500
    assert paths.limit(there, 20 * S) == 1420
    assert paths.limit(Endpoint.parse("[fd00::1]:1"), 0) == 1420  # nobody knows
