"""Segments: whether an SRH can be, and what a node did to a packet that it sent on.

A capture of ours has a packet once for each link, under one number. Where two of its records
are neighbours (the first leads to the node that sent the second) the outer header says what
that node did: sent it on, took the next segment, or shifted its compressed segments. RFC 8986,
section 4; RFC 9800, section 4.1. Where the hop limit fell by more than one there were hops
between whose records have no number, as where a path turns back.
"""

from itertools import product
from typing import NamedTuple

from netem.analysis.check.findings import Findings
from netem.analysis.check.link import Layer
from netem.analysis.check.packet import Packet
from netem.analysis.records import Interface
from wire.srh import ROUTING_TYPE, SEGMENT_SIZE, SRH

_MOST = 1 << 16  # Ours: packets that are under way; some 400 bytes each
_BLOCKS, _CSIDS = range(2, 13), (1, 2, 3, 4)  # bytes


class _Hop(NamedTuple):
    """An outer header as it left one port."""

    where: int
    target: bytes
    hop_limit: int
    segments_left: int  # -1 without SRH
    depth: int  # IP headers
    frame: int


class Srv6Judge:
    """All packets in packets, and all with segments."""

    def __init__(self, findings: Findings, interfaces: list[Interface]) -> None:
        self.packets = 0
        self._findings = findings
        self._interfaces = interfaces
        self._last: dict[int, _Hop] = {}

    def take(self, packet: Packet, found: list[Layer]) -> None:
        """Judge the outermost header, IPv6, of a packet with these layers."""
        outer = found[0]
        if outer.is_v4 or (len(found) == 1 and outer.srh < 0):
            return
        self.packets += 1
        data, ip = packet.data, outer.ip
        segments_left = -1
        if outer.srh >= 0 and data[outer.srh + 2] == ROUTING_TYPE:
            segments_left = data[outer.srh + 3]
            self._header(packet, outer)
        hop = _Hop(
            packet.where, data[ip + 24 : ip + 40], data[ip + 7], segments_left, len(found),
            packet.number,
        )  # fmt: skip
        if packet.packet_id is None:
            return
        before = self._last.pop(packet.packet_id, None)
        self._last[packet.packet_id] = hop
        if len(self._last) > _MOST:
            del self._last[next(iter(self._last))]
        if before is None or before.depth != hop.depth or "corrupted" in packet.comment:
            return
        came_to = self._interfaces[before.where].leads_to.partition(":")[0]
        if came_to and came_to == self._interfaces[hop.where].node:
            self._step(packet, before, hop, outer)

    def _header(self, packet: Packet, outer: Layer) -> None:
        _, size, _, left, last, _, _ = SRH.unpack_from(packet.data, outer.srh)
        if (last + 1) * SEGMENT_SIZE > size * 8 or left > last + 1:
            text = f"SRH of {size * 8} bytes with last entry {last} and SL {left}"
            self._findings.violation(packet.number, "srv6/S3", text)

    def _step(self, packet: Packet, before: _Hop, hop: _Hop, outer: Layer) -> None:  # noqa: C901
        """Judge what one node did."""
        fell = before.hop_limit - hop.hop_limit
        if fell > 1:
            return
        why = ""
        clause = "srv6/S1" if hop.segments_left != before.segments_left else "srv6/C1"
        if hop.target == before.target:
            clause = "srv6/S5"
            if fell < 0:
                why = f"hop limit {hop.hop_limit} after {before.hop_limit}"
        elif fell != 1:
            why = f"a segment was taken, and the hop limit stayed {hop.hop_limit}"
        elif hop.segments_left == before.segments_left:
            if not is_shift(before.target, hop.target):
                why = "the new destination is the old one with no segment shifted out"
        elif hop.segments_left >= 0:
            at = outer.srh + 8 + SEGMENT_SIZE * hop.segments_left
            if hop.segments_left != before.segments_left - 1:
                why = f"SL {hop.segments_left} after {before.segments_left}"
            elif not hop.target.startswith(packet.data[at : at + SEGMENT_SIZE]):  # may be cut
                why = f"the destination is not segment {hop.segments_left} of the list"
        if why:
            self._findings.violation(packet.number, clause, f"{why}; see frame {before.frame}")


def is_shift(before: bytes, after: bytes) -> bool:
    """Say whether `after` is a container of compressed segments with the first shifted out."""
    return any(
        before[:block] + before[block + csid :] + bytes(csid) == after
        for block, csid in product(_BLOCKS, _CSIDS)
    )
