"""Neighbours of one Ethernet port: ARP (RFC 826), neighbour discovery (RFC 4861), echo replies.

Who is known comes first from a table that the owner gives and nobody changes. For any other
address the resolver asks: a request at once, again after each second, MAX_TRIES in all
(RFC 4861, section 10: MAX_MULTICAST_SOLICIT, RETRANS_TIMER; ARP alike). Packets wait meanwhile,
a few per address; when nobody answers they are dropped and an `Unresolved` event says so. What
was learned is used for LIFETIME and then asked anew by the next packet: there is no timer for
it, so an idle port is silent.

    unknown --send--> asking --answer--> known --LIFETIME--> unknown
                      asking --MAX_TRIES without answer--> unknown, and Unresolved

It answers requests for its own addresses, and echo requests to them. It learns from answers to
its own questions and from requests that are addressed to it (RFC 826's merge; RFC 4861, section
7.2.3), never from anything else, and nothing changes a row of the owner's table.

The machine takes and gives whole Ethernet frames, tagged where the port has a VLAN.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from transports.clock import Ns, S
from wire import icmp, icmpv6
from wire.arp import ARP, Arp, Operation
from wire.codec import DecodeError, ReadBuffer
from wire.ethernet import BROADCAST, Ethernet, EtherType, Vlan, group_mac, is_multicast
from wire.icmpv6 import (
    NeighbourAdvertisement,
    NeighbourSolicitation,
    Option,
    OptionType,
    link_layer_address,
)
from wire.ipv4 import IPV4, Ipv4, Protocol
from wire.ipv6 import IPV6, Ipv6

# From the specification
RETRANS_TIMER: Ns = S  # RFC 4861, section 10
MAX_TRIES = 3  # MAX_MULTICAST_SOLICIT
HOP_LIMIT = 255  # RFC 4861, section 7.1: only a neighbour can send it
ALL_NODES = bytes.fromhex("ff02" + "00" * 13 + "01")
_SOLICITED_NODE = bytes.fromhex("ff02" + "00" * 9 + "01ff")  # and 3 bytes of the address
_UNSPECIFIED = bytes(16)

# Ours
LIFETIME: Ns = 60 * S  # how long an answer is believed; a MAC moves rarely
# Limit: 128 packets wait per address: a usual window. Later ones are dropped, not earlier ones:
# a sender that goes back N then has the least to send again.
MAX_WAITING = 128
# Limit: 256 addresses asked for at once; a host of a lab knows its peers from the plan.
MAX_ASKING = 256
# Limit: 1024 learned addresses; the one learned first makes room.
MAX_LEARNED = 1024
# Limit: 256 answers wait to be sent; a flood of questions gets no more.
MAX_ANSWERS = 256


class Refusal(Enum):
    """Why a frame was dropped, or a packet not sent."""

    MALFORMED = "malformed"  # a header that cannot be, or a wrong checksum
    NOT_FOR_US = "not_for_us"
    HOP_LIMIT = "hop_limit"  # neighbour discovery that a router passed on
    BAD_ADDRESS = "bad_address"  # a source or target that the text forbids
    NOT_ASKED = "not_asked"  # an answer to no question
    NOT_SPOKEN = "not_spoken"  # a protocol or a type that nobody here answers
    FLOOD = "flood"  # no room for one more answer
    QUEUE_FULL = "queue_full"  # too many packets wait for one address
    TABLE_FULL = "table_full"  # too many addresses are asked for
    UNRESOLVED = "unresolved"  # nobody answered
    NO_ADDRESS = "no_address"  # the port has no address of that family to ask from


@dataclass(frozen=True, slots=True)
class Unresolved:
    """Nobody answered for `ip`; `dropped` packets were waiting for it."""

    ip: bytes
    tries: int
    dropped: int


class Outgoing(NamedTuple):
    """One frame to send. `tag` is what its packet came with, None for what we made."""

    frame: bytes
    tag: object = None


@dataclass(slots=True)
class _Question:
    """An address that is asked for, and the packets that wait for it."""

    deadline: Ns
    tries: int = 1
    waiting: list[tuple[ReadBuffer, int, object]] = field(default_factory=list)


class Resolver:
    """The neighbours of one port, by the contract of `transports.machine`."""

    def __init__(
        self,
        mac: bytes,
        *,
        ipv4: bytes | None = None,
        ipv6: bytes | None = None,
        table: Mapping[bytes, bytes] | None = None,
        vlan: int | None = None,
    ) -> None:
        self.counters: Counter[str] = Counter()  # by Refusal, and answers by kind
        self._mac = mac
        self._ipv4 = ipv4
        self._ipv6 = ipv6
        self._table = dict(table or {})
        self._vlan = vlan
        self._solicited_node = None if ipv6 is None else _SOLICITED_NODE + ipv6[-3:]
        self._groups = {BROADCAST, group_mac(ALL_NODES)}
        if self._solicited_node is not None:
            self._groups.add(group_mac(self._solicited_node))
        self._learned: dict[bytes, tuple[bytes, Ns]] = {}  # ip -> MAC, believed until
        self._questions: dict[bytes, _Question] = {}
        self._out: deque[Outgoing] = deque()
        self._answers = 0  # of what waits in _out
        self._events: deque[Unresolved] = deque()

    # -- for the owner ---------------------------------------------------------------------

    def permanent(self, ip: bytes) -> bytes | None:
        """Return the MAC for `ip` if it is known for ever: the owner's table, or a group."""
        return self._table.get(ip) or (group_mac(ip) if is_multicast(ip) else None)

    def lookup(self, ip: bytes, now: Ns) -> bytes | None:
        """Return the MAC for `ip` if it is known now."""
        mac = self.permanent(ip)
        if mac is None and (learned := self._learned.get(ip)) is not None:
            if now < learned[1]:
                return learned[0]
            del self._learned[ip]
        return mac

    def send(
        self, packet: ReadBuffer, ip: bytes, now: Ns, *, pcp: int = 0, tag: object = None
    ) -> None:
        """Send an IP packet to the neighbour `ip` once its MAC is known. Keeps `packet`."""
        mac = self.lookup(ip, now)
        if mac is not None:
            self._emit(mac, packet, pcp, tag)
            return
        question = self._questions.get(ip)
        if question is None:
            if len(self._questions) >= MAX_ASKING:
                self._refuse(Refusal.TABLE_FULL)
                return
            if not self._ask(ip):
                self._refuse(Refusal.NO_ADDRESS)
                return
            question = self._questions[ip] = _Question(now + RETRANS_TIMER)
        if len(question.waiting) >= MAX_WAITING:
            self._refuse(Refusal.QUEUE_FULL)
            return
        question.waiting.append((packet, pcp, tag))

    # -- the machine -----------------------------------------------------------------------

    def receive(self, frame: ReadBuffer, now: Ns) -> None:
        """Take one Ethernet frame, from its destination on. Keeps no view of it."""
        try:
            self._receive(frame, now)
        except _RefusedError as refused:
            self._refuse(refused.why)
        except DecodeError:
            self._refuse(Refusal.MALFORMED)

    def expire(self, now: Ns) -> None:
        """Ask again, or give up, where nobody has answered in time."""
        for ip, question in [*self._questions.items()]:
            if question.deadline > now:
                continue
            if question.tries < MAX_TRIES:
                question.tries += 1
                question.deadline = now + RETRANS_TIMER
                self._ask(ip)
                continue
            del self._questions[ip]
            dropped = len(question.waiting)
            self.counters[Refusal.UNRESOLVED.value] += dropped
            self._events.append(Unresolved(ip, question.tries, dropped))

    @property
    def deadline(self) -> Ns | None:
        """When a question wants to be asked again, or None."""
        if not self._questions:
            return None
        return min(question.deadline for question in self._questions.values())

    @property
    def has_output(self) -> bool:
        """Say whether `transmit` has something."""
        return bool(self._out)

    def transmit(self, now: Ns) -> Iterator[Outgoing]:
        """Hand out the frames to send now."""
        del now
        while self._out:
            outgoing = self._out.popleft()
            self._answers -= outgoing.tag is _ANSWER
            yield Outgoing(outgoing.frame) if outgoing.tag is _ANSWER else outgoing

    @property
    def has_events(self) -> bool:
        """Say whether `events` has something."""
        return bool(self._events)

    def events(self) -> Iterator[Unresolved]:
        """Hand out addresses that nobody answered for."""
        while self._events:
            yield self._events.popleft()

    # -- what comes in ---------------------------------------------------------------------

    def _receive(self, frame: ReadBuffer, now: Ns) -> None:
        ethernet = Ethernet.unpack_from(frame)
        is_unicast = ethernet.dst == self._mac
        _require(is_unicast or ethernet.dst in self._groups, Refusal.NOT_FOR_US)
        _require(not ethernet.src[0] & 1, Refusal.BAD_ADDRESS)
        packet = memoryview(frame)[ethernet.size :]
        match ethernet.ethertype:
            case EtherType.ARP:
                self._receive_arp(Arp.unpack_from(packet), now)
            case EtherType.IPV4 if is_unicast:
                self._receive_ipv4(packet, ethernet.src, now)
            case EtherType.IPV6:
                self._receive_ipv6(packet, ethernet.src, now)
            case _:
                raise _RefusedError(Refusal.NOT_SPOKEN)

    def _receive_arp(self, arp: Arp, now: Ns) -> None:
        """RFC 826, packet reception; a probe (RFC 5227) has no sender to learn."""
        _require(arp.target_ip == self._ipv4, Refusal.NOT_FOR_US)
        _require(not arp.sender_mac[0] & 1, Refusal.BAD_ADDRESS)
        _require(arp.sender_ip != self._ipv4, Refusal.BAD_ADDRESS)
        if arp.operation == Operation.REPLY:
            _require(arp.sender_ip in self._questions, Refusal.NOT_ASKED)
            self._learn(arp.sender_ip, arp.sender_mac, now)
            return
        _require(arp.operation == Operation.REQUEST, Refusal.NOT_SPOKEN)
        reply = bytearray(ARP.size)
        Arp(Operation.REPLY, self._mac, arp.target_ip, arp.sender_mac, arp.sender_ip).pack_into(
            reply
        )
        self._answer(arp.sender_mac, EtherType.ARP, reply, "arp_answers")
        if any(arp.sender_ip):
            self._learn(arp.sender_ip, arp.sender_mac, now)

    def _receive_ipv4(self, packet: memoryview, asker: bytes, now: Ns) -> None:
        """Answer an echo request. RFC 1122, section 3.2.2.6."""
        ip = Ipv4.unpack_from(packet)
        _require(ip.dst == self._ipv4, Refusal.NOT_FOR_US)
        _require(ip.protocol == Protocol.ICMP, Refusal.NOT_SPOKEN)
        _require(not (ip.more_fragments or ip.fragment_offset), Refusal.NOT_SPOKEN)
        _require(ip.total_length <= len(packet), Refusal.MALFORMED)
        _require(any(ip.src) and ip.src[0] < 224, Refusal.BAD_ADDRESS)
        echo = icmp.unpack_from(packet[ip.size : ip.total_length])
        if not isinstance(echo, icmp.Echo) or echo.is_reply:
            raise _RefusedError(Refusal.NOT_SPOKEN)
        header = Ipv4(
            ip.dst, ip.src, Protocol.ICMP, IPV4.size + echo.size, tos=ip.tos,
            dont_fragment=ip.dont_fragment,
        )  # fmt: skip
        reply = bytearray(header.total_length)
        header.pack_into(reply)
        echo._replace(is_reply=True).pack_into(reply, header.size)
        mac = self.lookup(ip.src, now) or asker
        self._answer(mac, EtherType.IPV4, reply, "echo_answers", ip.tos >> 5)

    def _receive_ipv6(self, packet: memoryview, asker: bytes, now: Ns) -> None:
        ip = Ipv6.unpack_from(packet)
        _require(self._is_mine(ip.dst), Refusal.NOT_FOR_US)
        _require(ip.next_header == Protocol.ICMPV6, Refusal.NOT_SPOKEN)
        stop = IPV6.size + ip.payload_length
        _require(stop <= len(packet), Refusal.MALFORMED)
        _require(ip.src[0] != 0xFF and ip.src != self._ipv6, Refusal.BAD_ADDRESS)
        match icmpv6.unpack_from(packet[IPV6.size : stop], ip.src, ip.dst):
            case icmpv6.Echo(is_reply=False) as echo:
                self._answer_echo(ip, echo, self.lookup(ip.src, now) or asker)
            case NeighbourSolicitation() as solicitation:
                self._answer_solicitation(ip, solicitation, now)
            case NeighbourAdvertisement() as advertisement:
                self._receive_advertisement(ip, advertisement, now)
            case _:
                raise _RefusedError(Refusal.NOT_SPOKEN)

    def _is_mine(self, ip: bytes) -> bool:
        return self._ipv6 is not None and ip in {self._ipv6, self._solicited_node, ALL_NODES}

    def _answer_echo(self, ip: Ipv6, echo: icmpv6.Echo, mac: bytes) -> None:
        """RFC 4443, section 4.2. A request to a group is not answered."""
        _require(ip.dst == self._ipv6 and ip.src != _UNSPECIFIED, Refusal.BAD_ADDRESS)
        header = Ipv6(
            ip.dst, ip.src, Protocol.ICMPV6, echo.size, traffic_class=ip.traffic_class
        )
        reply = bytearray(IPV6.size + echo.size)
        header.pack_into(reply)
        echo._replace(is_reply=True).pack_into(reply, header.src, header.dst, IPV6.size)
        self._answer(mac, EtherType.IPV6, reply, "echo_answers", ip.traffic_class >> 5)

    def _answer_solicitation(
        self, ip: Ipv6, solicitation: NeighbourSolicitation, now: Ns
    ) -> None:
        """RFC 4861, sections 7.1.1, 7.2.3 and 7.2.4."""
        _require(ip.hop_limit == HOP_LIMIT, Refusal.HOP_LIMIT)
        _require(solicitation.target == self._ipv6, Refusal.NOT_FOR_US)
        asker = link_layer_address(solicitation.options, OptionType.SOURCE_LINK_LAYER)
        _require(asker is None or not asker[0] & 1, Refusal.BAD_ADDRESS)
        if ip.src == _UNSPECIFIED:  # somebody looks whether the address is taken: RFC 4862
            _require(ip.dst == self._solicited_node, Refusal.BAD_ADDRESS)
            _require(asker is None, Refusal.BAD_ADDRESS)
            self._advertise(ALL_NODES, group_mac(ALL_NODES))
            return
        mac = asker or self.lookup(ip.src, now)
        if mac is None:  # a question that does not say whom to answer
            raise _RefusedError(Refusal.BAD_ADDRESS)
        self._advertise(ip.src, mac)
        if asker is not None:
            self._learn(ip.src, asker, now)

    def _advertise(self, dst: bytes, mac: bytes) -> None:
        assert self._ipv6 is not None
        message = NeighbourAdvertisement(
            self._ipv6,
            (Option(OptionType.TARGET_LINK_LAYER, self._mac),),
            solicited=dst != ALL_NODES,
            override=True,
        )
        self._answer(mac, EtherType.IPV6, self._discovery(dst, message), "nd_answers")

    def _receive_advertisement(
        self, ip: Ipv6, advertisement: NeighbourAdvertisement, now: Ns
    ) -> None:
        """RFC 4861, sections 7.1.2 and 7.2.5."""
        _require(ip.hop_limit == HOP_LIMIT, Refusal.HOP_LIMIT)
        _require(advertisement.target[0] != 0xFF, Refusal.BAD_ADDRESS)
        _require(not advertisement.solicited or ip.dst == self._ipv6, Refusal.BAD_ADDRESS)
        mac = link_layer_address(advertisement.options, OptionType.TARGET_LINK_LAYER)
        if mac is None or mac[0] & 1:
            raise _RefusedError(Refusal.BAD_ADDRESS)
        _require(advertisement.target in self._questions, Refusal.NOT_ASKED)
        self._learn(advertisement.target, mac, now)

    def _learn(self, ip: bytes, mac: bytes, now: Ns) -> None:
        """Note who answers for `ip`, unless the owner's table knows; release what waits."""
        if ip not in self._table:
            self._learned.pop(ip, None)
            self._learned[ip] = (mac, now + LIFETIME)
            if len(self._learned) > MAX_LEARNED:
                del self._learned[next(iter(self._learned))]
        if (question := self._questions.pop(ip, None)) is not None:
            for packet, pcp, tag in question.waiting:
                self._emit(mac, packet, pcp, tag)

    # -- what goes out ---------------------------------------------------------------------

    def _ask(self, ip: bytes) -> bool:
        """Send a question for `ip`; False if the port has no address to ask from."""
        if len(ip) == 4:
            if self._ipv4 is None:
                return False
            request = bytearray(ARP.size)
            Arp(Operation.REQUEST, self._mac, self._ipv4, bytes(6), ip).pack_into(request)
            self._put(BROADCAST, EtherType.ARP, request)
            return True
        if self._ipv6 is None:
            return False
        group = _SOLICITED_NODE + ip[-3:]
        message = NeighbourSolicitation(ip, (Option(OptionType.SOURCE_LINK_LAYER, self._mac),))
        self._put(group_mac(group), EtherType.IPV6, self._discovery(group, message))
        return True

    def _discovery(
        self, dst: bytes, message: NeighbourSolicitation | NeighbourAdvertisement
    ) -> bytearray:
        """Return the IPv6 packet of a message of neighbour discovery to `dst`."""
        assert self._ipv6 is not None
        ip = Ipv6(self._ipv6, dst, Protocol.ICMPV6, message.size, hop_limit=HOP_LIMIT)
        packet = bytearray(IPV6.size + message.size)
        ip.pack_into(packet)
        message.pack_into(packet, ip.src, ip.dst, IPV6.size)
        return packet

    def _answer(
        self, mac: bytes, ethertype: int, packet: ReadBuffer, counter: str, pcp: int = 0
    ) -> None:
        _require(self._answers < MAX_ANSWERS, Refusal.FLOOD)
        self._answers += 1
        self.counters[counter] += 1
        self._put(mac, ethertype, packet, pcp, _ANSWER)

    def _emit(self, mac: bytes, packet: ReadBuffer, pcp: int, tag: object) -> None:
        ethertype = EtherType.IPV4 if packet[0] >> 4 == 4 else EtherType.IPV6
        self._put(mac, ethertype, packet, pcp, tag)

    def _put(
        self, mac: bytes, ethertype: int, packet: ReadBuffer, pcp: int = 0, tag: object = None
    ) -> None:
        vlan = None if self._vlan is None else Vlan(self._vlan, pcp)
        ethernet = Ethernet(mac, self._mac, ethertype, vlan)
        frame = bytearray(ethernet.size)
        ethernet.pack_into(frame)
        self._out.append(Outgoing(bytes(frame) + packet, tag))

    def _refuse(self, refusal: Refusal) -> None:
        self.counters[refusal.value] += 1


class _RefusedError(Exception):
    """Ends the look at one frame; never leaves `receive`."""

    def __init__(self, why: Refusal) -> None:
        super().__init__(why)
        self.why = why


def _require(holds: bool, otherwise: Refusal) -> None:
    if not holds:
        raise _RefusedError(otherwise)


_ANSWER = object()  # the tag of what counts against MAX_ANSWERS
