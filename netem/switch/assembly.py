"""From the plan of a switch to its parts: memory, ports, queues."""

from netem.impair.streams import Stream
from netem.switch.buffer import IngressAccount, Pool, QueueAccount, UncountedAccount
from netem.switch.egress_queue import EgressQueue
from netem.switch.marking import Marker
from netem.switch.pause import LosslessClass
from netem.switch.port import Port
from netem.switch.trimming import Trimmer
from netem.switch.watchdog import Watchdog
from netem.topology.plan import NodePlan, PortPlan
from netem.topology.switch_plan import QueuePlan, SwitchPlan


def assemble(node: NodePlan, plan: SwitchPlan) -> tuple[Pool, dict[str, Port]]:
    """Return the memory and the ports of a switch.

    Raise ValueError for a plan that cannot be: thresholds in disorder, memory that is all
    promised away, a class that does not exist.
    """
    queues, ports = plan.queues, len(node.ports)
    headroom = sum(queue.pfc.headroom for queue in queues if queue.pfc is not None)
    pool = Pool(plan.buffer, sum(queue.reserved for queue in queues) * ports, headroom * ports)
    return pool, {port.name: _port(node, plan, port, pool) for port in node.ports}


def _port(node: NodePlan, plan: SwitchPlan, port: PortPlan, pool: Pool) -> Port:
    classes = len(plan.queues)
    return Port(
        port,
        [_queue(node, plan, port, index, pool) for index in range(classes)],
        [_lossless(port.name, index, queue, pool) for index, queue in enumerate(plan.queues)],
        None if plan.trim is None else Trimmer(plan.trim, port.faces, classes),
    )


def _queue(
    node: NodePlan, plan: SwitchPlan, port: PortPlan, index: int, pool: Pool
) -> EgressQueue:
    queue = plan.queues[index]
    faces_host = port.faces == "host"
    marker = None
    if queue.ecn is not None:
        draws = Stream(node.seed, f"{node.name}:{port.name}", f"ecn of queue {index}")
        marker = Marker(queue.ecn, draws, is_on=queue.ecn.host_ports or not faces_host)
    trim_at = queue.trim_at
    if faces_host and queue.trim_at_host is not None:
        trim_at = queue.trim_at_host
    return EgressQueue(
        index,
        queue,
        _account(queue, port, pool),
        marker=marker,
        watchdog=None if plan.watchdog is None else Watchdog(plan.watchdog),
        trim_at=trim_at,
    )


def _account(queue: QueuePlan, port: PortPlan, pool: Pool) -> QueueAccount | UncountedAccount:
    if queue.pfc is not None:
        return UncountedAccount(queue.limit)
    limit = port.egress.limit if queue.limit is None else queue.limit
    return QueueAccount(pool, reserved=queue.reserved, limit=limit, alpha=queue.alpha)


def _lossless(port: str, index: int, queue: QueuePlan, pool: Pool) -> LosslessClass | None:
    if queue.pfc is None:
        return None
    priority = index if queue.priority is None else queue.priority
    account = IngressAccount(pool, queue.pfc, reserved=queue.reserved)
    return LosslessClass(port, index, priority, account)
