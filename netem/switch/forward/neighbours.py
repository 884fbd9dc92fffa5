"""Who asks for the MAC of an address of ours. RFC 826; RFC 4861.

Nodes of a lab have it from their plan; a guest, or a person's program, asks.
"""

from collections.abc import Mapping

from netem.switch.forward.adjacency import Port
from netem.switch.forward.parse import Link
from netem.switch.forward.ways import packed
from netem.switch.forwarder import Decision
from netem.topology.plan import NodePlan
from netem.topology.switch_plan import SwitchPlan
from transports.clock import Ns
from transports.neighbour import Resolver
from wire.codec import ReadBuffer
from wire.ethernet import EtherType
from wire.icmpv6 import Icmpv6Type
from wire.ipv4 import Protocol
from wire.ipv6 import IPV6


class Neighbours:
    """Answers ARP requests and neighbour solicitations for the addresses of a switch."""

    def __init__(self, ports: Mapping[str, Port], plan: SwitchPlan, node: NodePlan) -> None:
        self.answers = 0
        self._resolvers: dict[str, Resolver] = {}
        for port in node.ports:
            ipv6, ipv4 = port.ipv6 or plan.address, port.ipv4 or plan.address_v4
            if ipv6 or ipv4:
                self._resolvers[port.name] = Resolver(
                    ports[port.name].mac,
                    ipv4=packed(ipv4) if ipv4 else None,
                    ipv6=packed(ipv6) if ipv6 else None,
                    vlan=port.vlan,
                )

    def ask(
        self, ingress: Port, link: Link, frame: ReadBuffer, now: Ns
    ) -> tuple[Decision, ...]:
        """Return the answer to a frame that asks for one."""
        resolver = self._resolvers.get(ingress.name)
        if resolver is None or not _is_question(link, frame):
            return ()
        resolver.receive(frame, now)
        answers = tuple(Decision(ingress.name, out.frame) for out in resolver.transmit(now))
        self.answers += len(answers)
        return answers


def _is_question(link: Link, frame: ReadBuffer) -> bool:
    """Say whether a frame is ARP, or a neighbour solicitation."""
    if link.ethertype == EtherType.ARP:
        return True
    upper = link.offset + IPV6.size
    return (
        link.ethertype == EtherType.IPV6
        and len(frame) > upper
        and frame[link.offset + 6] == Protocol.ICMPV6
        and frame[upper] == Icmpv6Type.NEIGHBOUR_SOLICITATION
    )
