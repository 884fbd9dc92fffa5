"""Reading captures: ours and those of others, pcapng and classic pcap.

Gives each packet with its number as Wireshark shows it, the name of the interface, the comments
and the packet number of several hops: all that a pcapng file says and most readers leave out.
"""

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from netem.analysis.records import CaptureReader
from transports.clock import Ns
from wire import pcap, pcapng
from wire.codec import FieldError

_PCAPNG = pcapng.SECTION_HEADER.to_bytes(4, "big")
KILLED = "dropped"


class Captured(NamedTuple):
    """One packet of a capture."""

    number: int  # from 1, as `frame.number` in Wireshark
    at: Ns  # Unix time
    port: str  # name of the interface, "h0:p0"; empty where it has no such name
    frame: bytes
    original: int  # bytes on the wire
    remarks: tuple[str, ...] = ()  # comments, split into their phrases
    packet: int | None = None  # equal for one packet on several links
    outbound: bool | None = None

    @property
    def is_killed(self) -> bool:
        """Say whether the frame never left: its sender, or its link, dropped it."""
        return any(remark.startswith(KILLED) for remark in self.remarks)


def read_capture(file: BinaryIO) -> Iterator[Captured]:
    """Yield the Ethernet packets of a capture, in the order of the file.

    Raise DecodeError where the file is no capture, or ends in the middle of a record; packets
    of another link type than Ethernet are left out, but counted in `number`.
    """
    magic = file.read(4)
    file.seek(-len(magic), 1)
    return _read_pcapng(file) if magic == _PCAPNG else _read_pcap(file)


def read_as_far_as_possible(reader: CaptureReader) -> Iterator[Captured]:
    """Yield the same of a file that may be damaged: `reader.problem` says where it ended.

    Raise NoCaptureError for what is no capture.
    """
    interfaces = reader.interfaces
    for number, at, where, frame, original, comment, packet in reader.records():
        one = interfaces[where]
        if one.link_type == pcapng.LINKTYPE_ETHERNET:
            remarks = tuple(printable(comment).split("; ")) if comment else ()
            yield Captured(number, at, _port(one.name), frame, original, remarks, packet)


def _port(name: str) -> str:
    """Return the name of an interface if it is a port's: others capture both ways at theirs."""
    return printable(name) if ":" in name else ""


def printable(text: str) -> str:
    """Return a text of a file without what a terminal or a page would take for a command."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else " " for one in text)


def _read_pcapng(file: BinaryIO) -> Iterator[Captured]:
    number = 0
    for block in pcapng.read_blocks(file):
        if isinstance(block, pcapng.SimplePacket):
            number += 1
        if not isinstance(block, pcapng.EnhancedPacket):
            continue
        number += 1
        if block.interface.link_type != pcapng.LINKTYPE_ETHERNET:
            continue
        yield Captured(
            number,
            block.ts_ns,
            _port(block.interface.name),
            block.data,
            block.original_length,
            tuple(phrase for text in block.comments for phrase in printable(text).split("; ")),
            block.packet_id,
            block.outbound,
        )


def _read_pcap(file: BinaryIO) -> Iterator[Captured]:
    capture = pcap.read(file)
    if capture.link_type != pcapng.LINKTYPE_ETHERNET:
        raise FieldError("pcap.LinkType", capture.link_type, "0x1, Ethernet")
    for number, record in enumerate(capture.records, 1):
        yield Captured(number, record.ts_ns, "", record.data, record.original_length)
