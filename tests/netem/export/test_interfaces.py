"""What a container does to its interfaces, in a namespace that looks like a container's."""

import socket

import pytest

from netem.export import interfaces
from netem.export.config import Source, planned
from netem.kernel.run import KernelError, run, run_json
from netem.lab.find import find
from tests.sandboxed import in_sandbox
from wire.roce.packet import UDP_PORT

pytestmark = [pytest.mark.needs("netns"), pytest.mark.slow]

PLACES = {"p0": "198.19.128.2", "p1": "198.19.128.10"}


def attach(*pairs):
    """Give the namespace interfaces as an engine does: its names, its addresses, up."""
    for name, address in pairs:
        run(("ip", "link", "add", name, "type", "veth", "peer", "name", f"far-{name}"))
        run(("ip", "link", "set", f"far-{name}", "up"))
        run(("ip", "addr", "add", f"{address}/29", "dev", name))
        run(("ip", "link", "set", name, "up"))


def plan():
    return planned(find("mrc-two-plane").text, Source("lab.yaml", "mrc-two-plane"), "compose")


def taken(*order):
    attach(*((f"eth{number}", PLACES[port]) for number, port in enumerate(order)))
    interfaces.take(plan(), "h0", PLACES)
    return {link["ifname"]: link for link in run_json(("ip", "-json", "addr"))}


@pytest.mark.parametrize("order", [("p0", "p1"), ("p1", "p0")])
def test_the_order_of_attachment_does_not_matter(order):
    links = in_sandbox(lambda: taken(*order))
    ports = {port.name: port for port in plan().node("h0").ports}
    assert {"p0", "p1"} <= links.keys()
    assert not {"eth0", "eth1"} & links.keys()
    for name, port in ports.items():
        link = links[name]
        assert (link["address"], link["mtu"]) == (port.mac, port.mtu)
        assert "UP" in link["flags"]
        assert not link["addr_info"], "the engine's address is gone"


def refused():
    attach(("eth0", PLACES["p0"]))
    interfaces.ATTACH_LIMIT_S = 0.1
    with pytest.raises(KernelError) as error:
        interfaces.take(plan(), "h0", PLACES)
    return str(error.value)


def test_an_interface_that_is_not_there_is_named_with_what_is():
    said = in_sandbox(refused)
    assert "p1" in said
    assert PLACES["p1"] in said
    assert f"eth0 at {PLACES['p0']}" in said


def answered():
    """Send RoCE to an address of the kernel's; say whether it was told that nobody is there."""
    run(("ip", "link", "set", "lo", "up"))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asks:
        asks.settimeout(0.2)
        asks.connect(("127.0.0.1", UDP_PORT))
        try:
            for _ in range(50):
                asks.send(bytes(1024))
            asks.recv(100)
        except ConnectionRefusedError:
            return True
        except TimeoutError:
            return False


def test_the_kernel_stays_quiet_on_the_port_of_roce():
    def quietly():
        with interfaces.quiet_kernel():
            return answered()

    assert in_sandbox(answered) is True
    assert in_sandbox(quietly) is False
