"""Connections that the hosts of a lab make themselves, by the communication manager.

The plan says what both ends agree on; here it goes over the wire. The responder listens, one
service for each connection, and the requester asks when the run begins. Numbers, PSNs, depths,
timeouts and rights are those of the plan, so that a flow is the same however it was set up.
"""

from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from random import Random

from netem.host.events import Chronicle
from netem.topology.plan import NodePlan, QpPlan
from transports.clock import Ns
from transports.roce.attributes import QpState
from transports.roce.cm.connection import Connection
from transports.roce.cm.events import (
    CmEvent,
    ConnectRequest,
    Disconnected,
    Established,
    Rejected,
    Unreachable,
)
from transports.roce.cm.gsi import CmPort, Wish
from transports.roce.cm.parameters import CmConfig
from transports.roce.events import Event
from transports.roce.port import Port
from transports.roce.qp import QueuePair
from wire.roce.gid import guid_of

# Code: our ends acknowledge at once, so the ACK timeout is the path's, as the plan has it.
_ACK_DELAY = 0


class Connecting:
    """The queue pairs of one node that connect by the communication manager."""

    def __init__(
        self, node: NodePlan, devices: Mapping[str, Port], chronicle: Chronicle
    ) -> None:
        self._chronicle = chronicle
        self._ends: dict[tuple[str, int], tuple[QpPlan, QueuePair]] = {}  # port, service
        self._managers: dict[str, CmPort] = {}
        used = {plan.port for plan in node.qps if plan.service is not None}
        for port in node.ports:
            if port.name in used:
                guid = guid_of(bytes.fromhex(port.mac.replace(":", "")))
                config = CmConfig((), guid, target_ack_delay=_ACK_DELAY)
                rng = Random(f"{node.seed}/{port.name}/cm")
                self._managers[port.name] = CmPort(devices[port.name], config, rng)

    def add(self, plan: QpPlan, qp: QueuePair) -> None:
        """Take a queue pair in INIT; its plan has a service. The responder listens from now."""
        assert plan.service is not None
        self._ends[plan.port, plan.service] = plan, qp
        if plan.role == "responder":
            self._managers[plan.port].listen(plan.service)

    def start(self, now: Ns) -> None:
        """Ask for the connections that this node is to make."""
        for plan, qp in self._ends.values():
            if plan.role == "requester" and plan.service is not None:
                wish = Wish(
                    path_mtu=plan.path_mtu,
                    responder_resources=plan.max_dest_rd_atomic,
                    initiator_depth=plan.max_rd_atomic,
                    retry_count=plan.retry_cnt,
                    rnr_retry_count=plan.rnr_retry,
                    traffic_class=plan.traffic_class,
                    flow_label=0,  # then the UDP source port is made of the QPNs, as planned
                    ack_timeout=plan.timeout,
                    starting_psn=plan.rq_psn,
                    flow_control=plan.credits,
                )
                own, other = (ip_address(ip).packed for ip in (plan.local_ip, plan.remote_ip))
                manager = self._managers[plan.port]
                manager.connect(qp, own, other, plan.service, now, wish=wish)

    def take(self, port: str, event: Event, now: Ns) -> bool:
        """Look at an event of a port; say whether it was for nobody else."""
        manager = self._managers.get(port)
        return manager is not None and manager.take(event, now)

    def settled(self, now: Ns) -> Iterator[tuple[str, int, str]]:
        """Yield port and number of each queue pair that is in RTS by now, or never will be.

        With the latter, why not; it is in ERR, so what is posted there is flushed.
        """
        for port, manager in self._managers.items():
            for event in manager.events():
                settled = self._react(port, manager, event, now)
                if settled is not None:
                    connection, why = settled
                    yield port, connection.local_qpn, why

    def _react(
        self, port: str, manager: CmPort, event: CmEvent, now: Ns
    ) -> tuple[Connection, str] | None:
        match event:
            case ConnectRequest(connection):
                plan, qp = self._ends[port, connection.req.service_id & 0xFFFF]
                if qp.state is not QpState.INIT:
                    manager.reject(connection, now)
                    return None
                manager.accept(
                    connection, qp, now, rnr_retry_count=plan.rnr_retry,
                    min_rnr_timer=plan.min_rnr_timer, starting_psn=plan.rq_psn,
                    flow_control=plan.credits,
                )  # fmt: skip
            case Established(connection):
                self._chronicle.add(now, "connected", qp=connection.local_qpn)
                return connection, ""
            case Rejected(connection, reason=reason):
                return connection, f"the peer rejected it, reason {reason}"
            case Unreachable(connection, tries=tries):
                return connection, f"the peer did not answer, asked {tries} times"
            case Disconnected(connection):
                return connection, "the peer ended it"
        return None

    @property
    def is_used(self) -> bool:
        """Say whether there is any."""
        return bool(self._managers)

    @property
    def deadline(self) -> Ns | None:
        """When `expire` wants to be called, or None."""
        dues = [manager.deadline for manager in self._managers.values()]
        return min((due for due in dues if due is not None), default=None)

    def expire(self, now: Ns) -> None:
        """Let time pass. Calling it early or twice is harmless."""
        for manager in self._managers.values():
            manager.expire(now)
