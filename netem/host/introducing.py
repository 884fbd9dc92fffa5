"""MRC connections whose ends introduce themselves when the run begins: mrc.md 12.7.

The profile has it out of band, over TCP; hosts of a lab need no kernel, so here it goes over
the lab's control channel. What an end says is an event,

    setup    flow role says        one message, as JSON; `role` is who speaks

and whoever drives the host carries it to the flow's other end, by `hear`. What the two agree on
is what counts, not the plan: numbers, first PSNs, addresses, limits, the smaller path MTU. Only
the ways over SRv6 are the plan's. Ends that do not fit go to ERROR, and both know why.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Literal

from netem.host.events import SETUP, Chronicle
from netem.topology.plan import MrcPlan, MrcTemplate, QpPlan
from transports.clock import Ns, S
from transports.mrc.attributes import Peer, QpState
from transports.mrc.qp import QueuePair
from transports.mrc.setup import (
    LENGTH,
    READINGS,
    TIMEOUT,
    Ready,
    Region,
    Settled,
    Setup,
    SetupParameters,
    SetupRole,
)
from transports.mrc.srv6 import Row

Role = Literal["requester", "responder"]
_SPEAKS = {"requester": SetupRole.CONNECTING, "responder": SetupRole.LISTENING}
_OTHER: dict[str, Role] = {"requester": "responder", "responder": "requester"}
_NUMBER = 0xFF  # of a uSID


@dataclass(slots=True)
class _End:
    plan: QpPlan
    mrc: MrcPlan
    qp: QueuePair
    setup: Setup


class Introducing:
    """The queue pairs of one host that are set up so."""

    def __init__(self, chronicle: Chronicle, dilation: int) -> None:
        self._chronicle = chronicle
        self._dilation = dilation
        self._ends: dict[tuple[str, str], _End] = {}  # by flow and role
        self._open: dict[tuple[str, str], _End] = {}  # those that are not over
        self._due: Ns = 0  # when patience ends
        self._settled: deque[tuple[int, str]] = deque()

    def add(self, plan: QpPlan, qp: QueuePair) -> None:
        """Take a queue pair in INIT. A responder can hear from now on."""
        assert plan.mrc is not None
        ours = _parameters(plan, plan.mrc, self._dilation)
        setup = Setup(_SPEAKS[plan.role], ours)
        end = _End(plan, plan.mrc, qp, setup)
        self._ends[plan.flow, plan.role] = self._open[plan.flow, plan.role] = end

    def start(self, now: Ns) -> None:
        """Let the requesters speak; from now on nobody waits for ever."""
        self._due = now + TIMEOUT // self._dilation
        for end in tuple(self._open.values()):
            self._attend(end, now)

    def hear(self, flow: str, role: str, says: str, now: Ns) -> None:
        """Take a message that the flow's end of this role has said."""
        end = self._ends.get((flow, _OTHER.get(role, "requester")))
        if end is not None and end.plan.role != role:
            text = says.encode(errors="replace")
            end.setup.feed(len(text).to_bytes(LENGTH, "big") + text)
            self._attend(end, now)

    def _attend(self, end: _End, now: Ns) -> None:
        """Do what the dialogue asks for, and pass on what it says."""
        setup, plan = end.setup, end.plan
        for event in setup.events():
            if isinstance(event, Ready):
                can_send(end.qp, plan, end.mrc, now)
                self._over(end, "")
                self._chronicle.add(now, "connected", qp=plan.qp_num)
                continue
            try:
                can_receive(end.qp, peer_of(event), end.mrc, event.path_mtu, now)
            except ValueError as error:
                setup.refuse(str(error))
            else:
                setup.proceed()
        if setup.failure is not None and (plan.flow, plan.role) in self._open:
            end.qp.modify(QpState.ERROR, now)
            self._over(end, setup.failure)
        for data in setup.writes():
            says = data[LENGTH:].decode()
            self._chronicle.add(now, SETUP, flow=plan.flow, role=plan.role, says=says)

    def _over(self, end: _End, why: str) -> None:
        del self._open[end.plan.flow, end.plan.role]
        self._settled.append((end.plan.qp_num, why))

    def settled(self) -> Iterator[tuple[int, str]]:
        """Yield the number of each queue pair that is in RTS by now, or in ERROR, and why."""
        while self._settled:
            yield self._settled.popleft()

    @property
    def deadline(self) -> Ns | None:
        return self._due if self._open and self._due else None

    def expire(self, now: Ns) -> None:
        """Wait no longer for who has not answered."""
        if self.deadline is None or now < self._due:
            return
        for end in tuple(self._open.values()):
            end.setup.refuse(
                f"the other end did not answer within {TIMEOUT // S} s of the wall's clock"
            )
            self._attend(end, now)


def _parameters(plan: QpPlan, mrc: MrcPlan, dilation: int) -> SetupParameters:
    """Return what an end says of itself."""
    readings = mrc.readings
    region = plan.region
    return SetupParameters(
        qpn=plan.qp_num,
        start_psn=plan.sq_psn,
        addrs=mrc.local,
        srv6_rows=tuple(map(_row, mrc.back)),
        udp_dport=readings.udp_dport,
        ev_format=mrc.ev_format,
        path_mtu=plan.path_mtu,
        max_wimm_dest=mrc.max_wimm,
        mpr_dest=mrc.mpr,
        dynamic_mpr=mrc.dynamic_mpr,
        trim_nack=mrc.trimming,
        time_dilation=dilation,
        mrs=(Region(region.addr, region.size, region.r_key),),
        readings={name: getattr(readings, name) for name in READINGS},
    )


def _row(back: MrcTemplate | None) -> Row | None:
    """Return where our port is, which the way to it ends with."""
    if back is None:
        return None
    (t0, _), (downlink, _) = back.slots[-2:]
    return Row(t0 & _NUMBER, downlink & _NUMBER)


def peer_of(settled: Settled) -> Peer:
    """Return the peer as it has introduced itself."""
    theirs = settled.theirs
    return Peer(
        tuple(None if ip is None else ip_address(ip).packed for ip in theirs.addrs),
        theirs.qpn,
        theirs.start_psn,
        theirs.mpr_dest,
        theirs.max_wimm_dest,
        settled.dynamic_mpr,
        theirs.trim_nack,
        theirs.udp_dport,
    )


def can_receive(qp: QueuePair, peer: Peer, mrc: MrcPlan, path_mtu: int, now: Ns) -> None:
    """Take a queue pair to RTR. Raise ValueError for a peer that nothing leads to."""
    qp.modify(
        QpState.RTR,
        now,
        peer=peer,
        path_mtu=path_mtu,
        max_wimm_dest=mrc.max_wimm,
        mpr_dest=mrc.mpr,
        dynamic_mpr=mrc.dynamic_mpr,
    )


def can_send(qp: QueuePair, plan: QpPlan, mrc: MrcPlan, now: Ns) -> None:
    """Take a queue pair to RTS."""
    qp.modify(
        QpState.RTS,
        now,
        sq_psn=plan.sq_psn,
        max_wimm=mrc.max_wimm,
        mpr=mrc.mpr,
        timeout=plan.timeout,
        linear_retries=mrc.linear,
        exponential_retries=mrc.exponential,
    )
