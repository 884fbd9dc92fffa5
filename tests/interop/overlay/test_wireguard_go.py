"""Our tunnel against wireguard-go."""

import random
import select
import socket
import subprocess
import threading
import time

import pytest

from tests.interop.overlay.wireguard_go import (
    THEIR_KEY,
    THEIRS,
    Ours,
    echo,
    latest_handshake,
    run,
    wireguard_go,
)  # fmt: skip
from tests.sandboxed import in_sandbox
from tests.transports.overlay.world import forged_initiation, ip
from transports.clock import MS, S
from transports.overlay.events import Role, SessionBegun
from transports.overlay.limits import Limits

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.needs("netns", "tap", "ping", "wireguard_go", "wg"),
]


def we_begin():
    with wireguard_go():
        ours = Ours()
        answered = ours.ping(1) and ours.ping(2)
        return {
            "answered": answered,
            "log": [(way, kind, size) for _, way, kind, size in ours.log],
            "late": abs(latest_handshake() - time.time()) > 5,
            "refused": dict(ours.tunnel.refused),
            "roles": [e.role for e in ours.events if isinstance(e, SessionBegun)],
            "theirs": run("wg", "show", "wgo", "transfer").stdout.split()[1:],
            "status": [(s.tx_bytes, s.rx_bytes) for s in ours.tunnel.peers()],
        }


def test_we_begin_a_session_with_a_preshared_key_and_are_answered():
    told = in_sandbox(we_begin)
    assert told["answered"]
    assert told["log"] == [
        ("out", "initiation", 148), ("in", "response", 92),
        ("out", "data", 128), ("in", "data", 128), ("out", "data", 128), ("in", "data", 128),
    ]  # fmt: skip
    assert told["roles"] == [Role.INITIATOR]
    assert not told["late"]
    assert told["refused"] == {}
    ((tx, rx),) = told["status"]
    assert [int(n) for n in told["theirs"]] == [tx, rx]


def they_begin():
    with wireguard_go():
        ours = Ours()
        argv = ["ping", "-c", "3", "-i", "0.2", "-s", "1001", "-W", "5", "10.77.0.1"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as ping:
            ours.drive(lambda: ping.poll() is not None)
            text = ping.stdout.read()
        kinds = [(way, kind) for _, way, kind, _ in ours.log][:4]
        return text, kinds, [len(packet) for packet in ours.delivered]


def test_they_begin_and_their_ping_of_odd_size_is_answered_to_the_byte():
    text, kinds, sizes = in_sandbox(they_begin)
    assert "3 packets transmitted, 3 received" in text
    assert kinds == [("in", "initiation"), ("out", "response"), ("in", "data"), ("out", "data")]
    assert sizes == [1029] * 3  # trap 41: no padding is left


def renewals():
    with wireguard_go():
        limits = Limits(
            rekey_after_time=1 * S, reject_after_time=30 * S, rekey_timeout=500 * MS
        )
        ours = Ours(limits=limits)
        answered = [ours.ping(1)]
        for sequence in range(2, 12):
            ours.drive(lambda: False, limit=300 * MS)
            answered.append(ours.ping(sequence))
        begun = [event.role for event in ours.events if isinstance(event, SessionBegun)]
        return answered, begun, dict(ours.tunnel.refused), ours.now


def test_sessions_are_renewed_without_loss():
    answered, begun, refused, took = in_sandbox(renewals)
    assert all(answered)
    assert 3 <= len(begun) <= 1 + took // S  # one a second, however slow this host is
    assert set(begun) == {Role.INITIATOR}
    assert refused == {}


def roaming():
    with wireguard_go():
        ours = Ours()
        ours.ping(1)
        ours.bind(("127.0.0.9", 51899))
        answered = ours.ping(2)
        return answered, run("wg", "show", "wgo", "endpoints").stdout.split()[1]


def test_w05_they_follow_us_to_another_address():
    answered, endpoint = in_sandbox(roaming)
    assert answered
    assert endpoint == "127.0.0.9:51899"


def crossed():
    with wireguard_go():
        ours = Ours()
        argv = ["ping", "-c", "1", "-W", "12", "10.77.0.1"]
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as ping:
            # Theirs has come, unread, when ours goes out.
            assert select.select([ours.socket], [], [], 10)[0]
            ours.tunnel.send(ip("10.77.0.1", "10.77.0.2"))
            ours.drain()
            ours.drive(lambda: ping.poll() is not None, limit=14 * S)
            return ping.returncode, [kind for _, _, kind, _ in ours.log][:3]


def test_trap_7_initiations_that_cross_come_to_a_session():
    returncode, kinds = in_sandbox(crossed)
    assert returncode == 0
    assert kinds[0] == "initiation"


def what_they_refuse():
    """Our own refusals, held against theirs: each of these is silent there, too."""
    with wireguard_go():
        ours = Ours()
        ours.tunnel.send(ip("10.77.0.1", "10.77.0.2"))
        (initiation,) = (d.payload for d in ours.tunnel.transmit(ours.now))
        reserved, mac1 = bytearray(initiation), bytearray(initiation)
        reserved[2], mac1[120] = 1, mac1[120] ^ 1
        silent = {
            "reserved byte": ours.is_silent_after(bytes(reserved)),
            "mac1": ours.is_silent_after(bytes(mac1)),
            "one byte more": ours.is_silent_after(initiation + b"\0"),
        }
        ours.socket.sendto(initiation, THEIRS)
        ours.drive(lambda: "response" in ours.kinds("in"))
        silent["replayed initiation"] = ours.is_silent_after(initiation)
        ours.ping(1)
        (data,) = sealed(ours, 2)
        ours.socket.sendto(data, THEIRS)
        ours.drive(lambda: 2 in ours.replies)
        silent["replayed data"] = ours.is_silent_after(data)
        ours.tunnel.send(ip("10.77.0.9", "10.77.0.2"))  # not our address there
        silent["source not allowed"] = ours.drive(lambda: False, limit=300 * MS) is False
        return silent, ours.ping(3), run("wg", "show", "wgo", "endpoints").stdout.split()[1]


def sealed(ours, sequence):
    ours.tunnel.send(echo(8, sequence))
    return [d.payload for d in ours.tunnel.transmit(ours.now)]


def test_what_we_refuse_they_refuse():
    silent, alive, endpoint = in_sandbox(what_they_refuse)
    assert silent == dict.fromkeys(silent, True)
    assert alive
    assert endpoint == "127.0.0.1:51820"  # nobody else's datagram moved it


def under_load():
    with wireguard_go():
        ours = Ours()
        rng = random.Random(1)
        junk = [forged_initiation(THEIR_KEY.public, rng) for _ in range(400)]
        over, is_under_way = threading.Event(), threading.Event()

        def flood():
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                stranger.bind(("127.0.0.7", 0))
                while not over.is_set():
                    for payload in junk:
                        stranger.sendto(payload, THEIRS)
                    is_under_way.set()
                    over.wait(0.05)

        flooder = threading.Thread(target=flood, daemon=True)
        flooder.start()
        try:
            assert is_under_way.wait(10)
            ours.tunnel.send(ip("10.77.0.1", "10.77.0.2"))
            cookie = ours.drive(lambda: "cookie reply" in ours.kinds("in"), limit=17 * S)
            answered = ours.drive(lambda: "response" in ours.kinds("in"), limit=17 * S)
        finally:
            over.set()
            flooder.join()
        return cookie, answered, dict(ours.tunnel.refused)


def test_under_load_their_cookie_gets_us_in():
    cookie, answered, refused = in_sandbox(under_load)
    assert cookie
    assert answered
    assert refused == {}
