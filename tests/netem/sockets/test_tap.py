"""The process's side of an interface of the kernel's, TAP or veth."""

import socket
import subprocess

import pytest

from netem.kernel.run import run, start_batch
from netem.kernel.steps import stand_in
from netem.sockets.tap import Tap
from tests.sandboxed import in_sandbox

pytestmark = pytest.mark.needs("netns")

KINDS = [
    pytest.param("tap", marks=pytest.mark.needs("tap")),
    "veth",
]
MACS = bytes.fromhex("0200 0000 0002 0200 0000 0001")


def interface(kind, *settings):
    """Make `kp0`, up, of either kind."""
    if kind == "tap":
        run(("ip", "tuntap", "add", "dev", "kp0", "mode", "tap"))
    else:
        run(("ip", "link", "add", "kp0", "type", "veth", "peer", "name", stand_in("kp0")))
        start_batch("ip", [f"link set {stand_in('kp0')} addrgenmode none up"]).result()
    run(("ip", "link", "set", "kp0", *settings, "up"))


def kernel_socket():
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.bind(("kp0", 3))
    sock.settimeout(5)
    return sock


@pytest.mark.parametrize("kind", KINDS)
class TestEitherKind:
    def test_frames_go_both_ways_unchanged(self, kind):
        there, back = MACS + b"\x88\xb5" + bytes(60), MACS + b"\x88\xb6" + bytes(1500)

        def exchange():
            interface(kind, "addrgenmode", "none")
            with Tap("kp0") as tap, kernel_socket() as kernel:
                tap.send(there)
                heard = kernel.recv(2000)
                kernel.send(back)
                return heard, tap.receive()

        assert in_sandbox(exchange) == (there, back)

    def test_multicast_listener_reports_are_left_out(self, kind):
        def listen():
            interface(kind, "addrgenmode", "none")
            with Tap("kp0") as tap, kernel_socket() as kernel:
                report = bytes.fromhex("3333 0000 0016") + MACS[6:] + b"\x86\xdd" + bytes(76)
                kernel.send(report)
                kernel.send(MACS + b"\x88\xb5" + bytes(46))
                return tap.receive()[12:14], tap.reports_left_out

        assert in_sandbox(listen) == (b"\x88\xb5", 1)

    def test_nothing_there_is_a_blocking_io_error(self, kind):
        def receive():
            interface(kind, "addrgenmode", "none")
            with Tap("kp0") as tap:
                try:
                    tap.receive()
                except BlockingIOError:
                    return True

        assert in_sandbox(receive)


@pytest.mark.needs("tap")
def test_a_tap_that_is_down_takes_nothing():
    def send():
        interface("tap", "addrgenmode", "none")
        with Tap("kp0") as tap:
            subprocess.run(["ip", "link", "set", "kp0", "down"], check=True)
            try:
                tap.send(MACS + b"\x88\xb5" + bytes(60))
            except OSError:
                return True

    assert in_sandbox(send)


def test_a_tap_that_is_not_there_is_an_os_error():
    def attach():
        try:
            Tap("kp0").close()
        except OSError:
            return True

    assert in_sandbox(attach)
