"""A UDP length that is more than there is: trimmed by a switch, or wrong.

A switch that trims leaves the UDP length as it was, so both look the same. What tells them
apart is the comment of a capture of ours, the DSCP of trimmed packets, and the ICRC: a packet
that has one at the end of its IP packet has lost nothing.
"""

from netem.analysis.check.findings import Severity
from netem.analysis.check.link import has_trimmed_dscp, held
from netem.analysis.check.packet import Packet
from netem.analysis.check.roce_icrc import LEAST, is_intact


def overlong(packet: Packet, ip: int, udp: int) -> Severity | None:
    """Return how sure it is that the UDP length of a packet is wrong, None if it is not."""
    data = packet.data
    if "trimmed" in packet.comment or has_trimmed_dscp(data, ip, udp):
        return None
    length = held(data, ip, udp)
    if length >= int.from_bytes(data[udp + 4 : udp + 6], "big"):
        return Severity.VIOLATION  # neither IP nor the frame has so many bytes
    end = udp + length
    if length >= LEAST and end <= len(data):
        repaired = data[: udp + 4] + length.to_bytes(2, "big") + data[udp + 6 :]
        if is_intact(data, ip, udp, end) or is_intact(repaired, ip, udp, end):
            return Severity.VIOLATION
    return Severity.WARNING
