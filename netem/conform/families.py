"""The families beside RoCE, and which machine of ours is the endpoint of each.

The simulator drives it in virtual time, a node on packet sockets. There a case's times would be
over before a frame has come: timers, rates and round trips are made longer by the stretch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from netem.conform.endpoint import MACS, PEER_KEY, PEER_VA, Application, Joined, Side, Wants
from netem.conform.host_node import HostNode, HostWire
from netem.conform.mrc_node import MrcNode, MrcWire
from netem.conform.mrc_paths import own_ip, peer_ip
from netem.conform.sr_node import RoutingNode, RoutingWire
from netem.conform.sr_words import label, labelled
from netem.conform.sw_node import SwitchNode, SwitchWire
from netem.conform.sw_words import PORTS, neighbour_mac, own_mac
from netem.conform.virtual import VirtualTime, VirtualWire
from netem.conform.wg_node import NODE_IP, PEER_IP, WgNode, WgWire, wrapped
from transports.clock import MS, Ns
from wire.ethernet import ETHERNET

MAIN = "main"  # the link by which the suite's packets come in
REST = "rest"  # by which all leaves that no port and no table is named for
_Chosen = Callable[[bytes], str]  # the link of a frame


@dataclass(frozen=True, slots=True)
class Links:
    """What lies between the suite and a node of a family; a link has the name of its port."""

    names: tuple[str, ...]
    towards: _Chosen = lambda _: MAIN  # by which one a frame of the suite's goes in
    outwards: _Chosen = lambda _: MAIN  # by which one a frame of the machine's leaves
    heard: Callable[[str, bytes], bytes | None] = lambda _, frame: frame  # by which link
    stretch: int = 1
    hurry: Ns | None = None  # see Session


_Made = tuple[VirtualWire, Application]


@dataclass(frozen=True, slots=True)
class Family:
    """One kind of endpoint.

    `make` takes no links in the simulator. `links` None: a node needs more than such links.
    """

    make: Callable[[Wants, Links | None], _Made]
    links: Links | None
    ips: tuple[bytes, bytes] = (peer_ip(0), own_ip(0))  # the suite's, the endpoint's
    wrap: Callable[[bytes, int], bytes] | None = None  # around the suite's datagrams

    def joined(self, wants: Wants, number: int, opened: Mapping[str, int]) -> Joined:
        """Return both ends of the case of that number, from what `Application.open` said."""
        ours = Side(MACS[0], self.ips[0], 0x100000 + 16 * number + 1, PEER_VA, PEER_KEY)
        there = (opened.get(name, 0) for name in ("qp_num", "va", "key"))
        joined = Joined(wants, ours, Side(MACS[1], self.ips[1], *there))
        if self.wrap is not None:
            joined.wrap = self.wrap
        return joined


def _mrc(wants: Wants, links: Links | None) -> _Made:
    node = MrcNode(wants, 1 if links is None else links.stretch)
    return MrcWire(node), node


def _routing(_: Wants, links: Links | None) -> _Made:
    node = RoutingNode(() if links is None else links.names)
    return RoutingWire(node), node


def _switch(_: Wants, links: Links | None) -> _Made:
    node = SwitchNode(VirtualTime(), 1 if links is None else links.stretch)
    return SwitchWire(node), node


def _host(_: Wants, __: Links | None) -> _Made:
    time = VirtualTime()
    node = HostNode(time)
    return HostWire(node, time), node


def _gateway(wants: Wants, _: Links | None) -> _Made:
    node = WgNode(wants)
    return WgWire(node), node


def _of_label(frame: bytes) -> str:
    out, table = labelled(frame)
    return out or (f"t{table}" if table else REST)


def _relabelled(link: str, frame: bytes) -> bytes:
    """Return a frame with the port or the table in its MACs that a link stands for."""
    out = "" if link in {REST, MAIN} or link[0] == "t" else link
    return label(out, link[1:] if link[0] == "t" else "") + frame[ETHERNET.size :]


_PORT_OF = {mac(name): name for mac in (own_mac, neighbour_mac) for name in PORTS}


def _of_source(frame: bytes) -> str:
    return _PORT_OF[frame[6:12]]


ROUTING_LINKS = Links((MAIN, REST, "e1", "t7", "own"), outwards=_of_label, heard=_relabelled)
FAMILIES: Mapping[str, Family] = {
    "MRC": Family(_mrc, Links((MAIN,), stretch=1024, hurry=10 * MS)),
    "SRV6": Family(_routing, ROUTING_LINKS),
    "SWITCH": Family(_switch, Links(PORTS, _of_source, _of_source, stretch=100, hurry=2 * MS)),
    "HOST": Family(_host, None),
    "WG": Family(_gateway, None, (PEER_IP, NODE_IP), wrapped),
}
