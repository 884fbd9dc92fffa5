"""A node that routes by segments, in the simulator: its SIDs are what a case asks for.

! sid prefix=fc00:1::e/128 behaviour=End.X port=e1 flavours=PSP,USD
! sid prefix=fc00:1::e/128 flavours=USP upper=udp         takes UDP itself, by port `own`
! sid csids=0x11 block=32 width=16 behaviour=End          NEXT-CSID, of this structure
! steer to=fd0b:: segments=fc00:1::e,fc00:2::e reduced    a headend for what is to `to`
"""

from collections.abc import Collection, Mapping
from ipaddress import IPv6Address, IPv6Network

from netem.conform.endpoint import Bare, RefusedError, UnsupportedError
from netem.conform.notation import Value
from netem.conform.sr_words import NEXT_HEADERS, container, int_of, label
from netem.conform.virtual import VirtualTime, VirtualWire
from transports.clock import MS, Ns, S
from transports.srv6.endpoint import process
from transports.srv6.headend import Policy, encapsulate
from transports.srv6.outcome import (
    Adjacency,
    CrossConnect,
    Decapsulated,
    Deliver,
    Forward,
    Transit,
)
from transports.srv6.sids import Behaviour, Flavour, Sid, SidTable
from wire.csid import CsidStructure
from wire.ethernet import ETHERNET


class RoutingWire(VirtualWire):
    """Frames to and from the node; what comes out has the port and table in its MAC."""

    patience: Ns = 1 * S
    quiet: Ns = 1 * MS
    delay: Ns = 0

    def __init__(self, node: "RoutingNode") -> None:
        super().__init__(VirtualTime())
        self._node = node

    def send(self, frame: bytes) -> None:
        for out, table, packet in self._node.route(frame[ETHERNET.size :]):
            self._sent(label(out, table) + packet)

    def _deadline(self) -> None:
        return None

    def _expire(self) -> None:
        """Have no timer."""

    def _drain(self) -> None:
        """Keep nothing back."""


class RoutingNode(Bare):
    """The node's SIDs and policies: an Application whose requests are configuration."""

    def __init__(self, ways: Collection[str] = ()) -> None:
        """Begin; with `ways`, ports and tables (`t7`) are those alone."""
        self._ways = ways
        self._sids: list[Sid] = []
        self._policies: dict[bytes, Policy] = {}

    def route(self, packet: bytes) -> list[tuple[str, str, bytes]]:
        """Return what leaves: port, table, packet."""
        policy = self._policies.get(packet[24:40])
        outcome = (
            process(packet, SidTable(self._sids))
            if policy is None
            else encapsulate(packet, policy, is_router=True)
        )
        if isinstance(outcome, Forward):
            return [("", "", bytes(outcome.packet))]
        if isinstance(outcome, CrossConnect):
            return [(outcome.adjacencies[0].port, "", bytes(outcome.packet))]
        if isinstance(outcome, Decapsulated):
            return [("", str(outcome.table or ""), bytes(outcome.packet))]
        if isinstance(outcome, Deliver):
            return [("own", "", bytes(outcome.packet))]
        if isinstance(outcome, Transit):
            hop = packet[7] - 1
            return [("", "", packet[:7] + bytes((hop,)) + packet[8:])] if hop > 0 else []
        return []

    def act(self, name: str, fields: Mapping[str, Value]) -> Mapping[str, int]:
        try:
            if name == "sid":
                check_ways(fields, self._ways)
                self._sids.append(_sid(fields))
            elif name == "steer":
                source = IPv6Address("fd00:f::1").packed
                segments = str(fields["segments"]).split(",")
                path = tuple(IPv6Address(each).packed for each in segments)
                to = IPv6Address(str(fields["to"])).packed
                self._policies[to] = Policy(source, path, reduced="reduced" in fields)
            else:
                raise UnsupportedError(f"a node that routes has no {name}")
        except ValueError as error:
            raise RefusedError(str(error)) from error
        return {}


def check_ways(fields: Mapping[str, Value], ways: Collection[str]) -> None:
    """Raise UnsupportedError for a port or a table that is none of the ways there are."""
    wanted = [str(fields["port"])] if "port" in fields else []
    wanted += [f"t{fields['table']}"] if "table" in fields else []
    for way in wanted:
        if ways and way not in ways:
            raise UnsupportedError(f"there is no way {way} here, legal is {', '.join(ways)}")


def _sid(fields: Mapping[str, Value]) -> Sid:
    given = dict(fields)
    behaviour = Behaviour(str(given.pop("behaviour", "End")))
    flavours = Flavour.NONE
    for name in str(given.pop("flavours", "")).split(","):
        flavours |= Flavour[name] if name else Flavour.NONE
    structure = CsidStructure(32, 16)
    if "csids" in given:
        block, width = int_of(given, "block", 32), int_of(given, "width", 16)
        prefix = f"{container(str(given.pop('csids')), block, width)}/{block + width}"
        structure = CsidStructure(block, width)
        if behaviour in {Behaviour.END, Behaviour.END_X}:
            flavours |= Flavour.NEXT_CSID
    else:
        prefix = str(given.pop("prefix"))
    port = str(given.pop("port", ""))
    upper = str(given.pop("upper", ""))
    return Sid(
        IPv6Network(prefix),
        behaviour,
        flavours,
        structure,
        (Adjacency(port),) if port else (),
        table=int_of(given, "table", 0) or None,
        upper_layers=frozenset({NEXT_HEADERS[upper]} if upper else ()),
    )
