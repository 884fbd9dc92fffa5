"""The links between the suite and an endpoint in another namespace of the sandbox: veths.

Neither end has an address or IPv6: what the kernels would say is never heard by mistake.
"""

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial

from netem.conform.endpoint import MACS
from netem.kernel import sysctl
from netem.kernel.links import await_running
from netem.kernel.namespaces import control_socket, inside
from netem.kernel.offloads import BYTE_ACCURATE, Offloads
from netem.kernel.run import start_batch
from netem.kernel.sandbox import Gate, fork_node
from netem.sockets.packet import PacketSocket

_MTU = 9200


@contextmanager
def forked(
    name: str, links: tuple[str, ...], serve: Callable[[socket.socket], None]
) -> Iterator[tuple[socket.socket, Mapping[str, PacketSocket], int]]:
    """Fork an endpoint that runs `serve`, with its end of a channel and of each link.

    Yield the other end of the channel, a packet socket on ours of each link, and its pid. An
    interface is called as its link there, and NAME-LINK here. KernelError, OSError.
    """
    ours, theirs = socket.socketpair()
    gate = Gate()
    pid = fork_node(partial(serve, theirs), name=name, gate=gate)
    theirs.close()
    with ExitStack() as stack:
        stack.callback(ours.close)
        lay(name, links, pid)
        sockets = {link: stack.enter_context(PacketSocket(f"{name}-{link}")) for link in links}
        gate.open()
        yield ours, sockets, pid


def lay(name: str, links: tuple[str, ...], pid: int) -> None:
    """Lay links to the namespace of process `pid`, and have them up."""
    ours, theirs = (mac.hex(":") for mac in MACS)
    start_batch(
        "ip",
        [
            f"link add {name}-{link} mtu {_MTU} address {ours} type veth"
            f" peer {link} mtu {_MTU} address {theirs} netns {pid}"
            for link in links
        ],
    ).result()
    own = [f"{name}-{link}" for link in links]
    for where, interfaces in ((None, own), (pid, list(links))):
        with inside(where), control_socket() as control:
            for interface in interfaces:
                Offloads(control).write(interface, BYTE_ACCURATE)
                for key, value in sysctl.no_ipv6(interface).items():
                    sysctl.write(key, value)
        start_batch("ip", [f"link set dev {each} up" for each in interfaces], where).result()
    with control_socket() as control:
        for interface in own:
            await_running(control, interface)
