"""Which class a frame belongs to: by the DSCP of its outermost IP header, or by its tag's PCP.

The frame is looked at as it came in, as chips do: what the switch rewrites later (a tunnel
ended, a trimmed packet's DSCP) does not move it to another class.
"""

from netem.impair.alter import ethertype, header_size
from netem.topology.switch_plan import CLASSES, ClassifyPlan
from wire.codec import ReadBuffer
from wire.ethernet import EtherType

DSCPS, PCPS = 64, 8
_TAGGED = 0x8100, 0x88A8


class Classifier:
    """The two maps as tables. Raises ValueError for a class that the switch does not have."""

    def __init__(self, plan: ClassifyPlan, classes: int) -> None:
        if not 0 < classes <= CLASSES:
            raise ValueError(f"{classes} queues, legal is 1 to {CLASSES}")
        named = {plan.default, *plan.dscp.values(), *plan.pcp.values()}
        if wrong := sorted(named - set(range(classes))):
            raise ValueError(f"classify: there is no queue {wrong[0]}")
        self._by_dscp = [plan.dscp.get(value, plan.default) for value in range(DSCPS)]
        self._by_pcp = [plan.pcp.get(value, plan.default) for value in range(PCPS)]
        self._default = plan.default
        self._trusts_dscp = plan.trust == "dscp"
        self.is_trivial = len(named) == 1  # one class whatever the frame says

    def classify(self, frame: ReadBuffer) -> int:
        """Return the class of a frame of at least 14 bytes."""
        # bench: switch. Untagged IP is nearly everything.
        if len(frame) >= 16:
            high, low = frame[12], frame[13]
            if high == 0x86 and low == 0xDD:
                return self._by_dscp[(frame[14] & 0xF) << 2 | frame[15] >> 6]
            if high == 0x08 and low == 0x00:
                return self._by_dscp[frame[15] >> 2]
        return self._classify_clearly(frame)

    def _classify_clearly(self, frame: ReadBuffer) -> int:
        """Classify what has tags, is not IP, or ends early."""
        is_tagged = len(frame) >= 16 and int.from_bytes(frame[12:14], "big") in _TAGGED
        by_pcp = self._by_pcp[frame[14] >> 5] if is_tagged else None
        if by_pcp is not None and not self._trusts_dscp:
            return by_pcp
        ip = header_size(frame)
        if len(frame) >= ip + 2:
            kind = ethertype(frame)
            if kind == EtherType.IPV6:
                return self._by_dscp[(frame[ip] & 0xF) << 2 | frame[ip + 1] >> 6]
            if kind == EtherType.IPV4:
                return self._by_dscp[frame[ip + 1] >> 2]
        return self._default if by_pcp is None else by_pcp
