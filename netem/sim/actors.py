"""Who takes part in a simulation: nodes with their links, and what happens to these in time."""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

from netem.host.host import Host
from netem.impair.egress import Egress
from netem.impair.model import NEUTRAL, Impairment
from netem.impair.ports import is_paced
from netem.impair.schedule import NOTHING, End, Schedule
from netem.sim.nodes import Node
from netem.switch.express import Pass
from netem.switch.nic import Nic
from netem.switch.pipeline import Switch
from netem.topology.plan import NodePlan, PortPlan
from transports.clock import Ns

RANK_BITS = 40  # frames of one direction in a run

UNUSED = Egress("", "", NEUTRAL, 0)


class Direction:
    """One direction of one link, and when it is next looked at.

    The end of a link by the contract of `netem.impair.schedule`: each node here acts for what
    it sends, and for nothing else.
    """

    ingress: Egress | None = None

    def __init__(
        self,
        owner: "Actor",
        port: PortPlan,
        impairment: Impairment,
        target: "Actor",
        *,
        index: int,
        is_recorded: bool,
    ) -> None:
        self.index = index
        self.rank = index << RANK_BITS  # of the last frame that arrived or will
        self.is_recorded = is_recorded
        self.owner = owner
        self.port = port
        self.name = f"{owner.name}:{port.name}"
        self.peer = port.peer
        self.impairment = impairment  # by the lab file, at the start
        self.target = target
        self.entry = port.peer.partition(":")[2]  # the target's port
        self.egress = UNUSED
        self.woken_at: Ns | None = None
        # Frames that will arrive behind one that is on the heap, in order: time and rank, this
        # direction, frame, what it begins with. Only of a certain one: there none overtakes.
        self.line: deque[tuple[Ns, int, Direction, bytes, bytes]] = deque()
        self.is_awaited = False  # one is on the heap
        # The express way, see `netem.sim.express`
        self.is_certain = False  # when a frame leaves is said as it is offered
        self.is_delay = False  # and that is `delay` later
        self.delay: Ns = 0
        self.settle = self.egress.settler
        self.octets = 0  # of frames that took the express way
        self.pass_on: Pass | None = None  # of the target, a switch
        self.deliver: Callable[[bytes, bytes, Ns], bool] | None = None  # of the target, a host

    @property
    def passed(self) -> int:
        """How many frames have arrived, or will."""
        return self.rank - (self.index << RANK_BITS)

    def acts_for(self, name: str) -> Egress | None:
        return self.egress if name == self.name else None

    def review(self) -> None:
        """Do nothing: nobody goes round an egress here."""


class Actor:
    """One node: its machine, its directions, its schedule, and when it is next woken.

    By the contract of `netem.impair.schedule.Links`.
    """

    def __init__(self, node: NodePlan, machine: Node, index: int) -> None:
        self.index = index
        self.node = node
        self.name = node.name
        self.adopt(machine)
        self.out: dict[str, Direction] = {}
        self.is_early = False  # a switch with ports that give frames early
        self.schedule = Schedule(NOTHING, self, lambda *_: None)

    def adopt(self, machine: Node) -> None:
        """Begin a life with this machine."""
        self.machine = machine
        self.receive = machine.receive
        self.is_dead = False  # killed, and not restarted yet
        self.woken_at: Ns | None = None

    @property
    def ends(self) -> Sequence[Direction]:
        return tuple(self.out.values())

    def end_for(self, name: str) -> Direction | None:
        node, _, port = name.partition(":")
        return self.out.get(port) if node == self.name else None

    def change(self, name: str, impairment: Impairment, now: Ns) -> None:
        """Let another impairment hold for what a port sends; who paces has its rate itself."""
        direction = self._direction(name)
        direction.egress.change(impairment, now)
        if (paced := self._paced(direction)) is not None:
            paced.shape(direction.port.name, impairment, now)

    def hold(self, name: str, until: Ns, why: str, now: Ns) -> None:
        """Let nothing of what a port sends leave before `until`: it waits in its queues."""
        direction = self._direction(name)
        paced = self._paced(direction)
        if paced is None or not paced.hold(direction.port.name, until, why, now):
            direction.egress.hold(until, why, now)

    def _paced(self, direction: Direction) -> Switch | Nic | None:
        """Return the machine if it serialises by itself what it sends there."""
        if isinstance(self.machine, Switch | Nic) and is_paced(self.node, direction.port):
            return self.machine
        return None

    def set_carrier(self, end: End, is_up: bool) -> None:
        """Tell the machine that the link of an end has lost its carrier, or got it."""
        if isinstance(self.machine, Switch | Nic | Host):
            self.machine.set_carrier(end.name.partition(":")[2], is_up)

    def touched(self) -> Mapping[str, int]:
        """Return how many frames each link down and each hold has touched here."""
        total: Counter[str] = Counter()
        for direction in self.out.values():
            total.update(direction.egress.touched)
        if isinstance(self.machine, Switch | Nic):
            total.update(self.machine.touched)
        return total

    def _direction(self, name: str) -> Direction:
        direction = self.end_for(name)
        assert direction is not None, name
        return direction
