"""One direction of a connection: all packets from one address to one queue pair of another.

Requests and responses of a connection travel in two flows, since each goes to another queue
pair; no packet of RC says both numbers. `pair_up` finds the other direction by the PSNs that
are acknowledged.
"""

from collections.abc import Sequence
from ipaddress import ip_address

from netem.analysis.check.findings import Findings
from netem.analysis.check.requests import PSNS, Requests
from netem.analysis.check.responses import Responses
from netem.analysis.records import Interface
from transports.clock import Ns

_MOST_PLACES = 64  # Ours
NEAR = 1 << 10  # Ours: PSNs; first ones are drawn from all 2^24


class Flow:
    """What was seen of it, at the one interface where it was seen first."""

    __slots__ = (
        "began", "cnps", "damaged", "elsewhere", "ended", "first", "is_at_sender", "is_ours",
        "key", "killed", "lives", "marked", "name", "packets", "payload", "peer", "port", "qp",
        "requests", "responses", "service", "source", "target", "where",
    )  # fmt: skip

    def __init__(
        self,
        addresses: bytes,
        qp: int,
        where: int,
        interface: Interface,
        findings: Findings,
    ) -> None:
        half = len(addresses) // 2
        self.source, self.target, self.qp = addresses[:half], addresses[half:], qp
        self.where = where  # interface
        self.elsewhere: tuple[int, ...] = ()  # other interfaces that it was seen at
        self.is_ours = bool(interface.leads_to)  # a capture of ours
        # Its packets are seen as they leave their sender.
        self.is_at_sender = self.is_ours and not interface.forwards
        self.name = f"{ip_address(self.source)} > {ip_address(self.target)} QP {qp:#x}"
        self.service = ""
        self.first = 0  # frame
        self.packets = 0
        self.payload = 0  # bytes
        self.marked = 0  # packets with CE, at any interface
        self.cnps = 0
        self.damaged = 0  # packets with a wrong ICRC
        self.killed = 0  # packets that the capture says were dropped here
        self.began: Ns = 0
        self.ended: Ns = 0
        self.peer: Flow | None = None
        self.port = self.key = -1  # UDP source port and P_Key, -1 unknown
        self.lives = 0, 0  # of the connection that they are of: its requests, its peer's
        self.requests = Requests(findings, self.name)
        self.responses = Responses(findings, self.name, is_sure=self.is_at_sender)

    def seen_at(self, where: int) -> None:
        """Remember another interface that it was seen at."""
        if where not in self.elsewhere and len(self.elsewhere) < _MOST_PLACES:
            self.elsewhere += (where,)


def pair_up(flow: Flow, others: Sequence[Flow], psn: int) -> Flow | None:
    """Return the flow whose requests a response with `psn` in `flow` answers, if it is sure.

    Not where each is judged at another capture point and at least one of those has seen both:
    what comes first at one point says nothing about the other.
    """
    free = [
        one
        for one in others
        if one.peer is None
        and one.service == "RC"
        and one.requests.next >= 0
        and _is_comparable(flow, one)
    ]
    found = [one for one in free if one.requests.has_sent(psn)]
    if not found:  # an answer to nothing, of whom else
        found = [one for one in free if (psn - one.requests.next) % PSNS < NEAR]
    if len(found) != 1:
        return None
    flow.peer = found[0]
    found[0].peer = flow
    return found[0]


def _is_comparable(flow: Flow, other: Flow) -> bool:
    """Say whether the order of packets of two flows, one each way, means anything."""
    if flow.where == other.where or flow.is_ours:
        return True
    return flow.where not in other.elsewhere and other.where not in flow.elsewhere
