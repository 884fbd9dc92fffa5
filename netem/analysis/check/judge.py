"""One pass over a capture: every packet to those who judge it.

Most packets of most captures are RoCE in UDP in IP in Ethernet, with nothing between: they take
the short way. All else is walked header by header.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import BinaryIO

from netem.analysis.check.findings import Findings
from netem.analysis.check.link import IPV4, IPV6, PAUSE, READABLE, UDP, Layer, layers, network
from netem.analysis.check.mrc import MrcJudge
from netem.analysis.check.packet import Packet
from netem.analysis.check.pause import PauseJudge
from netem.analysis.check.roce import MOST_FLOWS, RoceJudge
from netem.analysis.check.rows import MRC
from netem.analysis.check.srv6 import Srv6Judge
from netem.analysis.check.summary import FlowSummary, summaries
from netem.analysis.check.trims import TrimJudge
from netem.analysis.check.whole import Whole
from netem.analysis.check.wireguard import WireguardJudge
from netem.analysis.records import CaptureReader, Interface
from transports.clock import Ns
from wire.mrc.options import PORTS
from wire.pcapng import LINKTYPE_ETHERNET
from wire.roce.packet import UDP_PORT

Progress = Callable[[int], None]  # is told how many bytes have been read
_ROCE = UDP_PORT.to_bytes(2, "big")
_V6, _V4 = IPV6.to_bytes(2, "big"), IPV4.to_bytes(2, "big")
_RAW = 101  # the link type of bare IP
_MOST_TUNNELS = 3  # in each other
_RECENT = 0xFFF  # Ours: 4096 packets are remembered, 1 MB
_NOTHING = -1, 0, b""
_HEADERS = 192  # bytes of each: two IPv6 headers, segments, UDP
_EVERY = 0xFFF  # packets between two reports of progress


class Judge:
    """Everything that is known of one capture."""

    def __init__(self, file: BinaryIO) -> None:
        self.reader = CaptureReader(file)
        self.findings = Findings()
        self.wireguard = WireguardJudge(
            self.findings, self.reader.secrets, self.reader.interfaces, self._inside
        )
        self.pauses = PauseJudge(self.findings)
        self.flows: list[FlowSummary] = []  # of the sections that have ended
        self.unchecked = 0  # packets whose ICRC the capture does not hold
        self.of_roce = 0  # packets of RoCE and MRC
        self.left_out = 0  # packets of flows that there was no room for
        self.judged = 0  # packets that somebody here knows
        self.unread: Counter[int] = Counter()  # packets, by link types that are not read
        self.is_interrupted = False  # by who reads the report
        self._packet = Packet()
        self._depth = 0  # tunnels around what is judged now
        self._begin(0)

    def _begin(self, first: int) -> None:
        """Begin a section whose interfaces count from `first` on."""
        interfaces = self.reader.interfaces
        self._section = first
        self._whole = Whole(self.reader, first)
        self.roce = RoceJudge(self.findings, interfaces)
        self.mrc = MrcJudge(self.findings, interfaces)
        self.srv6 = Srv6Judge(self.findings, interfaces)
        self.trims = TrimJudge(self.findings)
        self.wireguard.begin_section()

    def _end(self, stop: int) -> None:
        """End the section whose interfaces are those before `stop`."""
        self.roce.end()
        self.findings.settle(is_whole=self._whole.is_whole(stop) and not self.is_interrupted)
        self.of_roce += self.roce.packets + self.mrc.packets
        self.judged += self.srv6.packets
        self.unchecked += self.roce.unchecked + self.mrc.unchecked
        self.left_out += self.roce.left_out
        for flow in summaries(self.roce, self.mrc, self.reader.interfaces):
            if len(self.flows) < MOST_FLOWS:
                self.flows.append(flow)
            else:
                self.left_out += flow.packets

    @property
    def packets(self) -> int:
        """Return how many packets have been read."""
        return self._packet.number

    def run(self, progress: Progress | None = None) -> None:
        """Judge the whole file. Raise NoCaptureError for one that is no capture."""
        self.read(progress)
        self.finish()

    def finish(self) -> None:
        """Judge what only the end of the capture shows; also where `read` was interrupted."""
        self._end(len(self.reader.interfaces))
        self.judged += self.of_roce + self.wireguard.packets + self.pauses.packets
        self._lost()

    def read(self, progress: Progress | None = None) -> None:  # noqa: C901, PLR0912, PLR0915
        """Take every packet of the file. Raise NoCaptureError for what is no capture."""
        take, mrc, walk, whole = self.roce.take, self.mrc.take, self._walk, self._whole
        counts, last = whole.counts, whole.last
        before: int | bytes = b""  # the packet before: its number or its bytes, and its place
        place = -1
        reader, packet = self.reader, self._packet
        section = 0  # its first interface
        link_types: list[int] = []
        leads_on: list[bool] = []
        alias: list[int] = []  # of interfaces that go on where one of a section before ended
        # What packets began with on the link before, by the last bits of their numbers.
        recent: list[tuple[int, int, bytes]] = [_NOTHING] * (_RECENT + 1)
        for (
            packet.number,
            at,
            where,
            data,
            packet.original,
            comment,
            number,
        ) in reader.records():
            packet.at = at
            packet.where = where
            packet.data = data
            packet.comment = comment
            packet.packet_id = number
            if where >= len(link_types):
                if reader.sections and reader.sections[-1] > section:
                    section, whole.last = reader.sections[-1], last
                    alias = self._next_section(at)
                    take, mrc, whole = self.roce.take, self.mrc.take, self._whole
                    counts, last = whole.counts, whole.last
                    recent = [_NOTHING] * (_RECENT + 1)
                link_types = [one.link_type for one in reader.interfaces]
                leads_on = _leading_on(reader.interfaces[self._section :])
                leads_on[:0] = [False] * self._section
                counts += [0] * (len(link_types) - len(counts))
                if alias:
                    alias += range(len(alias), len(link_types))
            if alias:
                packet.where = alias[where]
            counts[where] += 1
            if at > last:
                last = at
            elif at < last:
                whole.is_broken = True
            else:
                whole.at_once(last, (place, before), (where, number or data))
            place, before = where, number or data
            if packet.original > len(data):
                whole.is_broken = True
            if progress is not None and not packet.number & _EVERY:
                progress(reader.consumed)
            if comment and "trimmed" in comment:
                known, source, was = recent[(number or 0) & _RECENT]
                is_it = known == number and self._follows(source, where)
                self.trims.take(packet, link_types[where], was if is_it else None)
            if leads_on[where] and number is not None:
                recent[number & _RECENT] = number, where, data[:_HEADERS]
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
        whole.last = last

    def _next_section(self, now: Ns) -> list[int]:
        """Go on in another section, whose first packet is of the time `now`.

        Return where each interface is taken to be, if the capture goes on where it was:
        the next of several files of one recorder. That is so where the section begins when the
        one before has ended, at interfaces of the same names. Else each section is judged as
        if it were a file of its own: another capture point, or another run.
        """
        interfaces, sections = self.reader.interfaces, self.reader.sections
        first = sections[-1]
        places = {
            (one.name, one.link_type): self._section + index
            for index, one in enumerate(interfaces[self._section : first])
        }
        is_ours = any(one.leads_to for one in interfaces[self._section :])
        goes_on = 0 < self._whole.last <= now and not is_ours and all(
            (one.name, one.link_type) in places for one in interfaces[first:]
        )  # fmt: skip
        if not goes_on:
            self._end(min(number for number in sections if number > self._section))
            self._begin(first)
            return []
        return [
            *range(first),
            *(places[one.name, one.link_type] for one in interfaces[first:]),
        ]

    def _follows(self, before: int, where: int) -> bool:
        """Say whether an interface is of the node that another leads to."""
        interfaces = self.reader.interfaces
        return interfaces[before].leads_to.partition(":")[0] == interfaces[where].node

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
        if inner.protocol != UDP or len(data) < udp + 8:
            return
        if inner.is_fragment:
            self._fragment(packet, inner)
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

    def _fragment(self, packet: Packet, inner: Layer) -> None:
        """Judge the first fragment of a datagram: of the others nobody knows the port."""
        data, udp = packet.data, inner.payload
        is_first = inner.is_v4 and not (data[inner.ip + 6] & 0x1F or data[inner.ip + 7])
        if is_first and data[udp + 2 : udp + 4] == _ROCE:
            text = "RoCE in an IPv4 fragment"
            self.findings.violation(packet.number, "roce/W12", text)

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
