"""A host of ours that obeys pauses, in the simulator: what leaves its port, and when.

! send class=3 count=2 size=904                  messages of one packet each, of class 3, 4 or 0
> PFC pause=3:1000                               its switch says so
< DATA class=3 n=1 size=998                      a frame of the host; n counts those of a class

It is host h0 of the lab below, as labs have it: the machine, behind it a NIC with a queue for
each class. Class 3 is priority 3, class 4 is priority 5. The line has 100 Mbit/s: a frame of
998 bytes, which has a payload of 904, takes 79.84 us, and a quantum 5.12 us.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from netem.conform.endpoint import Bare, RefusedError, UnsupportedError
from netem.conform.notation import Value
from netem.conform.rules import broken
from netem.conform.sr_words import int_of
from netem.conform.sw_words import Switched
from netem.conform.virtual import VirtualTime, VirtualWire
from netem.host.host import Host
from netem.host.layout import LayoutError
from netem.switch.nic import Nic
from netem.topology.load import load_lab
from netem.topology.plan import NodePlan, WorkPlan
from netem.topology.planner import plan_lab
from transports.clock import MS, Ns, S
from wire.codec import DecodeError
from wire.ipv6 import Ipv6
from wire.roce.frame import RoceFrame

_LAB = """
name: obeys
seed: 1
topology:
  nodes:
    h0: {}
    h1: {}
    s0: {kind: switch, classify: {dscp: {24: 3, 32: 4}}, queues: {
      3: {pfc: {xoff: 24KiB, xon: 12KiB, headroom: 128KiB}},
      4: {pfc: {xoff: 24KiB, xon: 12KiB, headroom: 128KiB}, priority: 5}}}
  links:
    - {endpoints: ["h0:p0", "s0:e0"]}
    - {endpoints: ["h1:p0", "s0:e1"]}
defaults: {link: {rate: 100mbit, delay: 0us, mtu: 1500}}
transports:
  class3: {kind: rc, mtu: 1024, timeout: 20, dscp: 24}
  class4: {kind: rc, mtu: 1024, timeout: 20, dscp: 32}
  class0: {kind: rc, mtu: 1024, timeout: 20}
workload:
  - {op: write, transport: class3, from: h0, to: h1, size: 1KiB, count: 64}
  - {op: write, transport: class4, from: h0, to: h1, size: 1KiB, count: 64}
  - {op: write, transport: class0, from: h0, to: h1, size: 1KiB, count: 64}
"""
_PORT = "p0"
_FIRST_PSN = 0x9000  # of each class


class HostNode(Bare):
    """The host: an Application that is asked to send."""

    def __init__(self, time: VirtualTime) -> None:
        plan = plan_lab(load_lab(_LAB))
        plan = replace(plan, nodes=tuple(map(_idle, plan.nodes)))
        node = plan.node("h0")
        self.nic = Nic(Host(plan, "h0"), node)
        self.flows = {int(qp.transport[-1]): qp for qp in node.qps}
        self._time = time

    def act(self, name: str, fields: Mapping[str, Value]) -> Mapping[str, int]:
        if name != "send":
            raise UnsupportedError(f"a host has no {name}, legal is send")
        given = dict(fields)
        which = int_of(given, "class", 3)
        if which not in self.flows:
            raise RefusedError(f"class={which}, legal is {', '.join(map(str, self.flows))}")
        size, count = int_of(given, "size", 904), int_of(given, "count", 1)
        work = WorkPlan(item=which, op="write", size=size, count=count)
        try:
            self.nic.post(self.flows[which].flow, work, self._time.at)
        except LayoutError as error:
            raise RefusedError(str(error)) from error
        return {}


class HostWire(VirtualWire):
    """The link between the host and its switch, which is the suite."""

    patience: Ns = 1 * S
    quiet: Ns = 10 * MS
    delay: Ns = 0  # a frame's time is when it leaves

    def __init__(self, node: HostNode, time: VirtualTime) -> None:
        super().__init__(time)
        self._node = node

    def send(self, frame: bytes) -> None:
        self._node.nic.receive(_PORT, frame, self.now())
        self._drain()

    def _deadline(self) -> Ns | None:
        return self._node.nic.deadline

    def _expire(self) -> None:
        self._node.nic.expire(self.now())

    def _drain(self) -> None:
        for _, frame, _ in self._node.nic.transmit(self.now()):
            self._sent(bytes(frame))


def _idle(node: NodePlan) -> NodePlan:
    """Return a node that has room for the lab's messages and sends none: a case says which."""
    qps = (
        replace(qp, sq_psn=_FIRST_PSN, work=tuple(replace(each, count=0) for each in qp.work))
        for qp in node.qps
    )
    return replace(node, qps=tuple(qps))


def hear_frame(at: Ns, frame: bytes) -> Switched:
    """Return what left the host."""
    try:
        roce = RoceFrame.unpack(frame)
    except DecodeError:
        return Switched(at, "OTHER", {"size": len(frame)})
    dscp = (roce.ip.traffic_class if isinstance(roce.ip, Ipv6) else roce.ip.tos) >> 2
    n = (roce.roce.bth.psn - _FIRST_PSN) % (1 << 24) + 1
    fields = {"class": dscp // 8, "dscp": dscp, "n": n, "size": len(frame)}
    return Switched(
        at, "DATA", fields, tuple(f"{rule}: {what}" for rule, what in broken(frame))
    )
