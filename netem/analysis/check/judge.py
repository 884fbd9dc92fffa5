"""One pass over a capture: every packet to those who judge it.

Most packets of most captures are RoCE in UDP in IP in Ethernet, with nothing between: they take
the short way. All else is walked header by header.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import BinaryIO

from netem.analysis.check.findings import Findings
from netem.analysis.check.link import IPV4, IPV6, PAUSE, READABLE, UDP, layers, network
from netem.analysis.check.mrc import MrcJudge
from netem.analysis.check.packet import Packet
from netem.analysis.check.pause import PauseJudge
from netem.analysis.check.roce import RoceJudge
from netem.analysis.check.rows import MRC
from netem.analysis.check.srv6 import Srv6Judge
from netem.analysis.check.trims import TrimJudge
from netem.analysis.check.wireguard import WireguardJudge
from netem.analysis.records import CaptureReader, Interface
from wire.mrc.options import PORTS
from wire.pcapng import LINKTYPE_ETHERNET
from wire.roce.packet import UDP_PORT

Progress = Callable[[int], None]  # is told how many bytes have been read
_ROCE = UDP_PORT.to_bytes(2, "big")
_V6, _V4 = IPV6.to_bytes(2, "big"), IPV4.to_bytes(2, "big")
_RAW = 101  # the link type of bare IP
_MOST_TUNNELS = 3  # in each other
_RECENT = 0xFFF  # Ours: 4096 packets are remembered, 1 MB
_HEADERS = 192  # bytes of each: two IPv6 headers, segments, UDP
_EVERY = 0xFFF  # packets between two reports of progress


class Judge:
    """Everything that is known of one capture."""

    def __init__(self, file: BinaryIO) -> None:
        self.reader = CaptureReader(file)
        self.findings = Findings()
        self.roce = RoceJudge(self.findings, self.reader.interfaces)
        self.mrc = MrcJudge(self.findings, self.reader.interfaces)
        self.srv6 = Srv6Judge(self.findings, self.reader.interfaces)
        self.wireguard = WireguardJudge(self.findings, self.reader.secrets, self._inside)
        self.pauses = PauseJudge(self.findings)
        self.trims = TrimJudge(self.findings)
        self.packets = 0
        self._depth = 0  # tunnels around what is judged now
        self.unread: Counter[int] = Counter()  # packets, by link types that are not read

    @property
    def judged(self) -> int:
        """Return how many packets there were that somebody here knows."""
        judges = self.roce, self.mrc, self.srv6, self.wireguard, self.pauses
        return sum(judge.packets for judge in judges)

    def run(self, progress: Progress | None = None) -> None:  # noqa: C901 - `bench check`
        """Judge the whole file. Raise NoCaptureError for one that is no capture."""
        take, mrc, walk = self.roce.take, self.mrc.take, self._walk
        reader = self.reader
        packet = Packet()
        link_types: list[int] = []
        leads_on: list[bool] = []
        # What packets began with on the link before, by the last bits of their numbers.
        recent: list[tuple[int, bytes]] = [(-1, b"")] * (_RECENT + 1)
        for (
            packet.number, packet.at, packet.where, packet.data, packet.original,
            packet.comment, packet.packet_id,
        ) in reader.records():  # fmt: skip
            data, where = packet.data, packet.where
            if where >= len(link_types):
                link_types = [one.link_type for one in reader.interfaces]
                leads_on = _leading_on(reader.interfaces)
            if progress is not None and not packet.number & _EVERY:
                progress(reader.consumed)
            number = packet.packet_id
            if packet.comment and "trimmed" in packet.comment:
                known, before = recent[(number or 0) & _RECENT]
                is_it = number is not None and known == number
                self.trims.take(packet, link_types[where], before if is_it else None)
            if leads_on[where] and number is not None:
                recent[number & _RECENT] = number, data[:_HEADERS]
            if link_types[where] == LINKTYPE_ETHERNET:
                ethertype = data[12:14]
                if ethertype == _V6:
                    if data[56:58] == _ROCE and data[20] == UDP and data[14] >> 4 == 6:
                        if take(packet, 14, 54) == MRC:
                            mrc(packet, 14, 54)
                        continue
                elif (
                    ethertype == _V4
                    and data[36:38] == _ROCE
                    and data[23] == UDP
                    and data[14] == 0x45
                    and data[20] & 0x3F == 0 == data[21]
                ):
                    if take(packet, 14, 34) == MRC:
                        mrc(packet, 14, 34)
                    continue
            walk(packet, link_types[where])
        self.packets = packet.number
        self.roce.end()
        self._sections()
        self._lost()
        self.findings.settle()

    def _sections(self) -> None:
        """Say how much of a file of several sections was not judged for order.

        Each section has interfaces of its own; a flow's order is judged at one.
        """
        if len(self.reader.sections) < 2:
            return
        second = self.reader.sections[1]
        both = self.roce.elsewhere + self.mrc.elsewhere
        count = sum(packets for where, packets in both.items() if where >= second)
        if count:
            text = (
                f"{count} packets in later sections of the file are of flows that are seen at "
                "other interfaces before: their bytes alone were judged, not their order"
            )
            self.findings.warning(0, "", text)

    def _lost(self) -> None:
        """Say how much whoever captured could not keep, by his own count."""
        if self.reader.dropped:
            text = f"the capture says that it has lost {self.reader.dropped} packets"
            self.findings.warning(0, "", text)

    def _walk(self, packet: Packet, link_type: int) -> None:
        """Find what is in a frame, however it is packed."""
        if link_type not in READABLE:
            self.unread[link_type] += 1
            return
        data = packet.data
        ethertype, start = network(link_type, data)
        if ethertype == PAUSE:
            self.pauses.take(packet, start)
            return
        found = list(layers(data, ethertype, start)) if ethertype in {IPV4, IPV6} else []
        if not found:
            return
        self.srv6.take(packet, found)
        inner = found[-1]
        udp = inner.payload
        if inner.protocol != UDP or inner.is_fragment or len(data) < udp + 8:
            return
        if data[udp + 2] << 8 | data[udp + 3] not in PORTS:
            addresses = data[inner.ip + 12 : inner.ip + 20]
            if not inner.is_v4:
                addresses = data[inner.ip + 8 : inner.ip + 40]
            self.wireguard.take(packet, addresses, udp)
        elif udp - inner.ip not in {20, 40}:
            text = "RoCE behind IPv4 options or IPv6 extension headers"
            self.findings.violation(packet.number, "roce/W12", text)
        elif self.roce.take(packet, inner.ip, udp) == MRC:
            self.mrc.take(packet, inner.ip, udp)

    def _inside(self, packet: Packet, data: bytes) -> None:
        """Judge what a tunnel carries as if it had been seen where its message was."""
        if self._depth >= _MOST_TUNNELS:
            return
        inner = Packet()
        inner.number, inner.at, inner.where = packet.number, packet.at, packet.where
        inner.data, inner.original, inner.comment = data, len(data), packet.comment
        self._depth += 1
        self._walk(inner, _RAW)
        self._depth -= 1


def _leading_on(interfaces: Sequence[Interface]) -> list[bool]:
    """Say of each interface whether what it sends may be sent on: to a node with several."""
    ports = Counter(one.node for one in interfaces)
    return [ports[one.leads_to.partition(":")[0]] > 1 for one in interfaces]
