"""What a switch left of a packet that it trimmed, against what came to it.

SAI's and SONiC's texts of packet trimming, as `netem/conform/registry/trim.md` has them. That a
packet was trimmed the capture says: its comment. What the packet was before is the record with
its number on the link before; without that, only its own lengths are judged. Which DSCP stands
for trimmed packets is the operator's choice: it must be another than the data's.

A packet that the switch marks and then trims has its new mark, so ECT may have become CE.
"""

import re
from typing import NamedTuple

from netem.analysis.check.findings import Findings
from netem.analysis.check.link import IPV4, IPV6, UDP, Layer, layers, network
from netem.analysis.check.packet import Packet
from wire.checksum import internet_checksum

_CUT = re.compile(r"trimmed to (\d+) bytes from (\d+) bytes")  # netem/capture/README.md
_NOT_ECT, _CE = 0, 3
_MOST = 4096  # Ours: trimmed packets that are remembered, until their next link


class _Left(NamedTuple):
    """A trimmed packet as it was on the link before."""

    frame: int
    size: int  # bytes from its UDP header on


class TrimJudge:
    """All trimmed packets of a capture."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._known: dict[int, _Left] = {}  # by packet number

    def take(self, packet: Packet, link_type: int, before: bytes | None) -> None:
        """Judge a packet whose comment says that it was trimmed; `before` is what it was."""
        if "corrupted" in packet.comment:
            return
        found = _layers(packet.data, link_type)
        if not found:
            return
        was = [] if before is None else _layers(before, link_type)
        cut = _CUT.search(packet.comment)
        self._lengths(packet, found[0], before, was)
        if before is not None and was and len(was) == len(found):
            # Without a tunnel that begins or ends here the outermost headers are the same one.
            self._marks(packet, found[0], before, was[0], is_new=cut is not None)
        self._again(packet, found[-1])
        if found[-1].protocol == UDP and not found[-1].is_fragment:
            self._udp(packet, found[-1].payload, before, was, cut)

    def _lengths(
        self, packet: Packet, outer: Layer, before: bytes | None, was: list[Layer]
    ) -> None:
        """T11: the outermost header is that of what is left."""
        there = packet.original
        is_wrong = outer.end > there
        if before is not None and was and was[0].ip == outer.ip:
            is_wrong = outer.end != min(there, was[0].end)  # the link may have padded it
        if is_wrong:
            text = (
                f"trimmed: the outer IP header ends its packet after {outer.end - outer.ip}"
                f" bytes, {there - outer.ip} are there"
            )
            self._findings.warning(packet.number, "trim/T11", text)
        if outer.is_v4 and internet_checksum(packet.data[outer.ip : outer.payload]):
            text = "trimmed: the checksum of the outer IPv4 header is wrong"
            self._findings.warning(packet.number, "trim/T11", text)

    def _marks(
        self, packet: Packet, outer: Layer, before: bytes, was: Layer, *, is_new: bool
    ) -> None:
        """T2: another DSCP, the same ECN bits."""
        now, then = _traffic_class(packet.data, outer), _traffic_class(before, was)
        if is_new and now >> 2 == then >> 2:
            text = f"trimmed with DSCP {now >> 2}, that of the packet before"
            self._findings.violation(packet.number, "trim/T2", text)
        was_marked = now & 3 == _CE and then & 3 != _NOT_ECT
        if now & 3 != then & 3 and not was_marked:
            text = f"trimmed: ECN bits {now & 3:02b}, they were {then & 3:02b}"
            self._findings.violation(packet.number, "trim/T2", text)

    def _again(self, packet: Packet, inner: Layer) -> None:
        """T7: not twice."""
        size = packet.original - inner.payload
        text = ""
        if len(_CUT.findall(packet.comment)) > 1:
            text = "trimmed twice at one port"
        if packet.packet_id is not None:
            earlier = self._known.pop(packet.packet_id, None)
            if earlier is not None and size < earlier.size:
                lost = earlier.size - size
                text = f"trimmed again, by {lost} bytes; see frame {earlier.frame}"
            self._known[packet.packet_id] = _Left(packet.number, size)
            if len(self._known) > _MOST:
                del self._known[next(iter(self._known))]
        if text:
            self._findings.violation(packet.number, "trim/T7", text)

    def _udp(
        self,
        packet: Packet,
        udp: int,
        before: bytes | None,
        was: list[Layer],
        cut: re.Match[str] | None,
    ) -> None:
        """T12: UDP's header says what it said."""
        header = packet.data[udp + 4 : udp + 8]
        if len(header) < 4:
            return
        length = int.from_bytes(header[:2], "big")
        if before is not None and was and was[-1].protocol == UDP:
            at = was[-1].payload
            then = before[at + 4 : at + 8]
            if len(then) == 4 and header != then:
                what = "length" if header[:2] != then[:2] else "checksum"
                text = f"trimmed: UDP {what} changed, {then.hex()} became {header.hex()}"
                self._findings.violation(packet.number, "trim/T12", text)
        elif cut is not None and int(cut[1]) < int(cut[2]) and length <= packet.original - udp:
            text = f"trimmed: UDP length {length} is no more than what is left"
            self._findings.violation(packet.number, "trim/T12", text)


def _layers(data: bytes, link_type: int) -> list[Layer]:
    ethertype, at = network(link_type, data)
    return list(layers(data, ethertype, at)) if ethertype in {IPV4, IPV6} else []


def _traffic_class(data: bytes, layer: Layer) -> int:
    if layer.is_v4:
        return data[layer.ip + 1]
    return (data[layer.ip] & 15) << 4 | data[layer.ip + 1] >> 4
