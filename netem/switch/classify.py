"""Which class a frame belongs to: by the DSCP of its outermost IP header, or by its tag's PCP.

The frame is looked at as it came in, as chips do: what the switch rewrites later (a tunnel
ended, a trimmed packet's DSCP) does not move it to another class.
"""

from struct import Struct

from netem.impair.alter import ethertype, header_size
from netem.topology.switch_plan import CLASSES, ClassifyPlan
from wire.codec import ReadBuffer
from wire.ethernet import ETHERNET, EtherType
from wire.pfc import ETHERTYPE as MAC_CONTROL

DSCPS, PCPS = 64, 8
# In place of a class
CONTROL = -1  # a MAC control frame: for the port, not for anybody behind it
RUNT = -2  # ends within its Ethernet header

# EtherType | the first two bytes behind it, where both versions of IP have the traffic class
_HEAD = Struct("!12xHH")
_IPV4, _IPV6 = int(EtherType.IPV4), int(EtherType.IPV6)
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

    def classify(self, frame: ReadBuffer) -> int:
        """Return the class of a frame, CONTROL or RUNT."""
        # bench: switch. Untagged IP is nearly everything.
        if len(frame) >= _HEAD.size:
            word: int
            kind, word = _HEAD.unpack_from(frame)
            if kind == _IPV6:
                return self._by_dscp[word >> 6 & 0x3F]
            if kind == _IPV4:
                return self._by_dscp[word >> 2 & 0x3F]
        return self._classify_clearly(frame)

    def _classify_clearly(self, frame: ReadBuffer) -> int:
        """Classify what has tags, is not IP, or ends early."""
        if len(frame) < ETHERNET.size:
            return RUNT
        if frame[12] << 8 | frame[13] == MAC_CONTROL:
            return CONTROL
        is_tagged = len(frame) >= 16 and int.from_bytes(frame[12:14], "big") in _TAGGED
        by_pcp = self._by_pcp[frame[14] >> 5] if is_tagged else None
        if by_pcp is not None and not self._trusts_dscp:
            return by_pcp
        ip = header_size(frame)
        if len(frame) >= ip + 2:
            kind = ethertype(frame)
            if kind == _IPV6:
                return self._by_dscp[(frame[ip] & 0xF) << 2 | frame[ip + 1] >> 6]
            if kind == _IPV4:
                return self._by_dscp[frame[ip + 1] >> 2]
        return self._default if by_pcp is None else by_pcp
