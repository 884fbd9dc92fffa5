"""The packet that is looked at: one object for all of a capture, filled anew for each."""

from netem.analysis.check.rows import ROWS, Row
from transports.clock import Ns


class Packet:
    """Where a record was seen, and what its headers say.

    The first part is set for every record, the second by those who read the headers.
    """

    __slots__ = (
        "aeth", "at", "behind_bth", "bits", "bth_psn", "comment", "data", "end", "number",
        "opcode", "original", "packet_id", "psn", "qp", "row", "size", "where",
    )  # fmt: skip

    def __init__(self) -> None:
        self.number = 0  # as Wireshark counts
        self.at: Ns = 0
        self.where = 0  # interface
        self.data = b""
        self.original = 0  # bytes on the wire
        self.comment = ""
        self.packet_id: int | None = None

        self.row: Row = ROWS[0]
        self.opcode = 0
        self.bits = 0  # byte 1 of the BTH
        self.qp = 0  # the BTH's second word: FECN, BECN, six reserved bits, DestQP
        self.bth_psn = 0  # its third: AckReq, seven reserved bits, PSN
        self.psn = 0  # the PSN alone
        self.behind_bth = 0  # offset in `data`
        self.end = 0  # offset behind the ICRC
        self.size = 0  # payload
        self.aeth = -1  # the header's 32 bits, -1 without
