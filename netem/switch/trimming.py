"""When a packet is trimmed, and with which DSCP it goes on. trimming.md 1, 2, 5; mrc.md 12.6.

A packet is trimmed at the moment at which the buffer refuses it, or at which its queue would be
longer than `trim_at`. What is left of it is offered to the trim queue, which may refuse it as
well. Nobody trims twice: a packet that carries one of the DSCPs of trimmed packets is dropped.

What becomes of the bytes is in `netem.impair.trim`.
"""

from netem.impair.trim import cut_at, dscp, trim
from netem.topology.switch_plan import PortFacing, TrimPlan
from wire.codec import ReadBuffer

MAX_DSCP = 63


class Trimmer:
    """Trims at one egress port."""

    def __init__(self, plan: TrimPlan, faces: PortFacing, classes: int) -> None:
        """Raise ValueError, in words, for a plan that cannot be."""
        if (plan.size is None) == (plan.keep is None):
            raise ValueError("trim: exactly one of size and keep is given")
        if not 0 <= plan.queue < classes:
            raise ValueError(
                f"trim: there is no queue {plan.queue}, legal is 0 to {classes - 1}"
            )
        self.queue = plan.queue
        self._plan = plan
        self._faces_host = faces == "host"
        self._trimmable = frozenset(plan.trimmable)
        new = {plan.dscp, *plan.dscp_map.values()}
        self._trimmed = frozenset(new if plan.dscp_host is None else {plan.dscp_host, *new})
        for code in self._trimmed:
            if not 0 <= code <= MAX_DSCP:
                raise ValueError(f"trim: DSCP {code}, legal is 0 to {MAX_DSCP}")

    def is_trimmable(self, frame: ReadBuffer) -> bool:
        """Say whether the packet may be trimmed: by its DSCP, and by what it is."""
        code = dscp(frame)
        if code is None or code in self._trimmed:
            return False
        if self._trimmable and code not in self._trimmable:
            return False
        return cut_at(frame, self._plan) is not None

    def trim(self, frame: ReadBuffer) -> bytes | None:
        """Return what is left of a trimmable packet; None where it is too short to be cut.

        A short packet is sent whole if the plan says so, with the new DSCP: it has left its
        queue, and a receiver that is told so asks again.
        # Unclear: the SONiC text does not say that the DSCP of a short packet changes. We say
        # yes, because the next switch must not put it behind the data again.
        """
        cut, code = cut_at(frame, self._plan), dscp(frame)
        assert cut is not None
        assert code is not None
        if cut >= len(frame) and self._plan.short == "drop":
            return None
        return trim(frame, cut, self._new_dscp(code), self._plan)

    def _new_dscp(self, code: int) -> int:
        plan = self._plan
        if self._faces_host and plan.dscp_host is not None:
            return plan.dscp_host
        return plan.dscp_map.get(code, plan.dscp)
