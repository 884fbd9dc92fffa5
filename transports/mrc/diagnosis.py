"""Two ends that read a disputed point differently: told in words, once per point.

A wrong reading mostly looks like a path or a peer that is broken. These are its signs.
"""

from collections import deque

from transports.mrc.events import Mismatch

SWAP_HINT = "give both ends the same"


class Diagnosis:
    """What one queue pair, or the endpoint of a device, has found so far."""

    def __init__(self, qp_num: int, events: deque[object]) -> None:
        self._qp_num = qp_num
        self._events = events
        self._told: set[str] = set()

    def tell(self, point: str, sign: str) -> None:
        """Tell of a mismatch, if that was not done yet."""
        if point not in self._told:
            self._told.add(point)
            self._events.append(Mismatch(self._qp_num, point, f"{sign}; {SWAP_HINT} {point}"))

    def ev_split(self, sent: int, reflected: int) -> None:
        """Look at an EV that came back and was not sent."""
        if reflected == (sent >> 16 | (sent & 0xFFFF) << 16):
            self.tell(
                "WireOptions.ev_split",
                f"EV {sent:#010x} came back as {reflected:#010x}: the peer has the halves of an"
                " EV the other way round",
            )

    def ack_msn(self, what: str) -> None:
        """Tell that AETH.msn does not fit."""
        self.tell(
            "QpConfig.ack_msn", f"AETH.msn is not read as the peer means it, which is {what}"
        )

    def icrc(self) -> None:
        """Tell of ones in the ICRC's place."""
        self.tell("WireOptions.icrc", "ones in place of an ICRC: the peer makes none")

    def bit_order(self) -> None:
        """Tell of MigReq, which MRC does not use."""
        self.tell(
            "WireOptions.bth_bit_order", "MigReq is set: the peer means the solicited event bit"
        )

    def eeth_op(self, op: int) -> None:
        """Tell of an answer to an EV probe that says that it is another one."""
        self.tell(
            "WireOptions.eeth_op_shift",
            f"the answer to an EV probe says operation {op}: the peer has the bits elsewhere",
        )

    def port_mask(self, mask: int, planes: int) -> None:
        """Tell of a port mask that names other planes than there are."""
        self.tell(
            "WireOptions.port_mask_base",
            f"port mask {mask:#x} as it stands in the packet, of a peer of {planes} planes: its"
            " first plane is at another bit",
        )
