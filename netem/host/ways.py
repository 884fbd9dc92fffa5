"""Where a host's packets go beyond its own link: the plan's routes, and source routes by SRv6.

A route names the MAC of the router before the host, so a destination that is no neighbour is
reached without a question on the link. A queue pair with a source route puts an outer IPv6
header, and where the way needs one an SRH, before each packet (RFC 8986, section 5: H.Encaps,
H.Encaps.Red); at the other end a SID of the host takes it off. The inner packet is not touched,
so its ICRC stays right.
"""

from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from netem.topology.plan import NodePlan, QpPlan
from netem.topology.segments import sids
from transports.srv6.endpoint import process
from transports.srv6.headend import Policy, encapsulate
from transports.srv6.outcome import Decapsulated, Forward
from transports.srv6.sids import SidTable
from wire.codec import ReadBuffer
from wire.ipv6 import IPV6

# Limit: a packet that meets SIDs of this host again and again is dropped after these steps.
MAX_SIDS = 16


class Ways:
    """The routes, source routes and SIDs of one port."""

    def __init__(self, node: NodePlan, port: str) -> None:
        self.counters = {"encapsulated": 0, "decapsulated": 0, "not_ours": 0}
        self.policies = {
            qp.qp_num: _policy(qp) for qp in node.qps if qp.port == port and qp.source_route
        }
        self.has_sids = bool(node.sids)
        self._sids = SidTable(sids(node.sids))
        self._routes: list[tuple[IPv4Network | IPv6Network, bytes]] = [
            (ip_network(route.prefix), bytes.fromhex(hop.mac.replace(":", "")))
            for route in node.routes
            for hop in route.hops
            if hop.port == port
        ]

    def mac(self, destination: bytes) -> bytes | None:
        """Return the MAC of the router for `destination`; None where no route has it."""
        address = ip_address(destination)
        return next((mac for network, mac in self._routes if address in network), None)

    def encapsulated(self, packet: ReadBuffer, qp_num: int) -> ReadBuffer | None:
        """Return what goes out for a packet of a queue pair; None where it cannot go out."""
        policy = self.policies.get(qp_num)
        if policy is None:
            return packet
        match encapsulate(packet, policy):
            case Forward(packet=outer):
                self.counters["encapsulated"] += 1
                return outer
            case _:
                self.counters["not_ours"] += 1
                return None

    def decapsulated(self, packet: ReadBuffer) -> ReadBuffer | None:
        """Return the packet inside an IPv6 packet that came for a SID of this host.

        None for one that is for none of them; what the behaviour refuses is counted.
        """
        for _ in range(MAX_SIDS):
            if len(packet) < IPV6.size or self._sids.find(bytes(packet[24:40])) is None:
                return None
            match process(packet, self._sids):
                case Decapsulated(packet=inner):
                    self.counters["decapsulated"] += 1
                    return inner
                case Forward(packet=onward):
                    packet = onward
                case _:
                    break
        self.counters["not_ours"] += 1
        return None


def _policy(qp: QpPlan) -> Policy:
    route = qp.source_route
    assert route is not None
    return Policy(
        ip_address(route.source).packed,
        tuple(ip_address(segment).packed for segment in route.segments),
        reduced=route.mode == "encaps_red",
    )
