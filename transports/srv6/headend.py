"""Steering a packet into a path: H.Encaps and H.Encaps.Red. RFC 8986, sections 5.1 and 5.2.

A new IPv6 header goes in front, with the first segment as its destination and, unless that says
it all, an SRH with the others. What is inside stays as it is, checksums and ICRC included.

The outer header takes its traffic class from the packet, DSCP and ECN (the uniform model; the
ECN half is asked for by RFC 6040, section 4.1), and from IPv6 its flow label and hop limit too;
over IPv4 these are 0 and 64. Each can be set to a number instead, which for the class is the
pipe model. All of it is what Linux does, but for the class over IPv4, which it leaves at zero.

A router counts as a hop. Deviation: it takes one off the *outer* hop limit, as Linux does;
RFC 8986, section 5.1, takes it off the inner one, which ends in the same outer header. A policy
with `inner_hop` follows the text.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from struct import Struct

from transports.srv6 import ip
from transports.srv6.outcome import TIME_EXCEEDED, Drop, Forward, Reason
from transports.srv6.sids import refusal
from wire.codec import FieldError, ReadBuffer, TruncatedError, check_size, check_uint
from wire.csid import ADDRESS_SIZE, F3216, CsidStructure, pack_container
from wire.extension import NextHeader
from wire.ipv6 import IPV6, Ipv6
from wire.srh import Srh, Tlv

IPV4_HOP_LIMIT = 64  # of the outer header over IPv4, as Linux has it
_MAX_LENGTH = 0xFFFF
_FIRST_WORDS = Struct("!IHBB")  # of IPV6, the addresses left out


@dataclass(frozen=True, slots=True)
class Policy:
    """A path, and what headers for it say; made once, used for every packet.

    Raises ValueError, one line, for segments that cannot be or a field that does not fit.
    """

    source: bytes
    segments: tuple[bytes, ...]  # in the order of travel
    reduced: bool = False  # H.Encaps.Red; one segment then needs no SRH
    tlvs: tuple[Tlv, ...] = ()
    traffic_class: int | None = None  # None: that of the packet
    flow_label: int | None = None  # None: that of the packet, 0 over IPv4
    hop_limit: int | None = None  # None: that of the packet, 64 over IPv4
    inner_hop: bool = False  # a router takes its hop off the inner packet, as the text says
    # Outer header, its first 8 bytes to be filled in, and SRH: for IPv6 and for IPv4 inside.
    heads: tuple[bytes, bytes] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.segments:
            raise ValueError("a path has at least one segment")
        named = [("source", self.source), *(("segment", each) for each in self.segments)]
        for name, address in named:
            check_size(name, address, ADDRESS_SIZE)
            if why := refusal(IPv6Address(address)):
                raise ValueError(f"{name} {IPv6Address(address)} is {why}")
        for name, bits in (("traffic_class", 8), ("flow_label", 20), ("hop_limit", 8)):
            if (value := getattr(self, name)) is not None:
                check_uint(name, value, bits)
        if self.hop_limit is not None and self.hop_limit < 2:
            raise ValueError(f"hop_limit is {self.hop_limit}, which a router cannot pass on")
        heads = self._head(NextHeader.IPV6), self._head(NextHeader.IPV4)
        object.__setattr__(self, "heads", heads)

    @property
    def overhead(self) -> int:
        """How many bytes longer a packet becomes."""
        return len(self.heads[0])

    def _head(self, inner: int) -> bytes:
        """Return the headers; no SRH where the destination says it all. RFC 8754, 4.1."""
        if self.reduced and len(self.segments) == 1 and not self.tlvs:
            head = bytearray(IPV6.size)
        else:
            srh = Srh.of_path(inner, self.segments, reduced=self.reduced, tlvs=self.tlvs)
            head = bytearray(IPV6.size + srh.size)
            srh.pack_into(head, IPV6.size)
            inner = NextHeader.ROUTING
        Ipv6(self.source, self.segments[0], inner, 0).pack_into(head)
        return bytes(head)


def encapsulate(
    packet: ReadBuffer, policy: Policy, *, is_router: bool = False
) -> Forward | Drop:
    """Steer an IP packet, from its IP header on, into a path. Never raises.

    A host sends what it made itself; a router passes on what came in, and its hop limit must
    allow that. The owner counts a Drop by its reason.
    """
    try:
        inner = ip.whole(packet)
    except TruncatedError:
        return Drop(packet, Reason.TRUNCATED)
    except FieldError:
        return Drop(packet, Reason.VERSION)
    if is_router and ip.hop_limit(inner) <= 1:
        return Drop(packet, Reason.HOP_LIMIT, TIME_EXCEEDED)
    if len(inner) + policy.overhead - IPV6.size > _MAX_LENGTH:
        return Drop(packet, Reason.TOO_LONG)
    if not is_router:
        out = _push(inner, policy)
    elif policy.inner_hop:
        older = bytearray(inner)
        ip.take_hop(older)
        out = _push(memoryview(older), policy)
    else:
        out = _push(inner, policy)
        ip.take_hop(out)
    return Forward(out, policy.segments[0])


def h_encaps(
    packet: ReadBuffer,
    source: bytes,
    segments: Sequence[bytes],
    *,
    reduced: bool = False,
    tlvs: Sequence[Tlv] = (),
) -> bytearray:
    """Return an IP packet of this host's own, steered into the path of `segments`.

    Raise ValueError for a path that cannot be or a packet that becomes too long, and its child
    DecodeError for bytes that are no IP packet.
    """
    policy = Policy(source, tuple(segments), reduced=reduced, tlvs=tuple(tlvs))
    inner = ip.whole(packet)
    check_uint("payload_length", len(inner) + policy.overhead - IPV6.size, 16)
    return _push(inner, policy)


def encaps_usid(
    packet: ReadBuffer,
    source: bytes,
    block: bytes,
    csids: Sequence[int],
    *,
    structure: CsidStructure = F3216,
) -> bytearray:
    """Return `h_encaps` of a path of CSIDs, in as few containers as hold them.

    One container is the destination and needs no SRH; more go into a reduced one.
    """
    return h_encaps(packet, source, containers(block, csids, structure), reduced=True)


def containers(
    block: bytes, csids: Sequence[int], structure: CsidStructure = F3216
) -> tuple[bytes, ...]:
    """Return the containers of a path of CSIDs, in the order of travel."""
    step = structure.capacity
    return tuple(
        pack_container(block, csids[at : at + step], structure)
        for at in range(0, len(csids), step)
    )


def _push(packet: memoryview, policy: Policy) -> bytearray:
    class_, label, hop_limit = policy.traffic_class, policy.flow_label, policy.hop_limit
    is_ipv4 = ip.is_ipv4(packet)
    if class_ is None:
        class_ = ip.traffic_class(packet)
    if label is None:
        label = ip.flow_label(packet)
    if hop_limit is None:
        hop_limit = IPV4_HOP_LIMIT if is_ipv4 else packet[ip.HOP_LIMIT_OFFSET]
    out = bytearray(policy.heads[is_ipv4])
    length = len(out) - IPV6.size + len(packet)
    next_header = out[ip.NEXT_HEADER_OFFSET]
    word = 6 << 28 | class_ << 20 | label
    _FIRST_WORDS.pack_into(out, 0, word, length, next_header, hop_limit)
    out += packet
    return out
