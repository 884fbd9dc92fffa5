"""The switch machine: a frame in at port p at time now; frames out with their port and time.

    in -> classify -> forward -> latency -> admission -> queues -> line -> out
     |                bridge,               room, mark,   strict,   rate,
     | PFC            route, SRv6           trim, drop    DWRR      pause
     v                                        |                      ^
    pauses -----------------------------------|----------------------+
                                              v
                  memory of a lossless class is short: its sender must pause

Each stage is a file of its own; this one leads frames from one to the next.

**Time.** Whatever comes from outside at `now` first lets everything happen that is due by then,
each thing at its own time: a driver that is late gets the same departures, marks and drops as
one that is not, only later.

**Conservation.** At any moment

    received + copies + originated = sent + dropped + consumed + queued

where `copies` are the frames that flooding adds, `originated` what the switch makes itself (PFC
frames, answers), `consumed` what was for the switch itself, and `queued` all that it holds. A
trimmed packet is the same frame, shorter; that it counts as dropped in its queue is another
matter, and SAI's wish.

**Bounds.** Queues are bounded by the buffer, frames within the latency by MOST_INSIDE, what the
driver has not taken by `netem.switch.ledger.MOST_OUT`, events by the chronicle.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from hashlib import blake2b

from netem.host.events import HostEvent
from netem.impair.departure import NO_META, FrameMeta
from netem.impair.model import Impairment
from netem.switch.admission import Admission
from netem.switch.assembly import assemble
from netem.switch.classify import CONTROL, Classifier
from netem.switch.express import Express, Pass, Passed
from netem.switch.forward.router import forwarder_of
from netem.switch.forwarder import Decision, Drop, Flood, Forwarder, Punt
from netem.switch.ledger import Ledger
from netem.switch.lines import NEVER, Lines
from netem.switch.port import Gone, Port
from netem.switch.report import counters_of
from netem.switch.trimming import Trimmer
from netem.topology.outcome import NodeReport
from netem.topology.plan import NodePlan, WorkPlan
from netem.topology.switch_plan import SwitchPlan, TrimPlan
from transports.clock import Ns
from wire.codec import DecodeError, ReadBuffer
from wire.ethernet import ETHERNET
from wire.pfc import Pfc

# Limit: 65,536 frames, what 400 Gbit/s of 64 byte frames bring within 84 us.
MOST_INSIDE = 1 << 16


class Switch:
    """One switch of a plan, by the contract of `transports.machine` with port names."""

    def __init__(
        self, node: NodePlan, forwarder: Forwarder | None = None, *, express: bool = True
    ) -> None:
        """Raise ValueError for a plan that cannot be, by `assembly` or by forwarding.

        `forwarder` is what the plan says, unless a test brings its own. Without `express` every
        frame goes through every stage, at its time: the definition of what comes out.
        """
        plan = node.switch or SwitchPlan()
        self.name = node.name
        self._latency = plan.latency
        self._classify = Classifier(plan.classify, len(plan.queues)).classify
        self._pool, self._ports = assemble(node, plan)
        self._forwarder = forwarder or forwarder_of(node, self.backlog)
        self._ledger = Ledger()
        self._admission = Admission(self._pool, self._ledger)
        self._lines = Lines(self._ports, self._ledger, settles=express)
        self._express = Express(
            self._ports,
            self._pool,
            self._lines,
            self._forwarder,
            enter=self._enter,
            is_open=express and plan.watchdog is None,
            is_instant=not plan.latency,
        )
        # Frames within the latency: when it is over, way out, class, frame, way in
        self._inside: deque[tuple[Ns, Port, int, ReadBuffer, Port | None]] = deque()
        self._now: Ns = 0
        self._copies = self._consumed = 0

    # -- the owner's side ------------------------------------------------------------------

    def start(self, now: Ns) -> None:
        """Say for which classes marking is on: who waits for marks should know."""
        queues = next(iter(self._ports.values())).queues if self._ports else ()
        names = {True: "", False: ""}
        for queue in queues:
            names[queue.marker is not None] += f" {queue.index}"
        self._ledger.chronicle.add(
            now, "marking", on=names[True].strip(), off=names[False].strip()
        )

    def release(self, item: int, now: Ns) -> None:
        """Take note of nothing: a switch has no work of its own."""

    def hear(self, flow: str, role: str, says: str, now: Ns) -> None:
        """Take note of nothing: no flow ends here."""

    def post(self, flow: str, work: WorkPlan, now: Ns) -> bool:
        """Return False: no flow ends here."""
        del flow, work, now
        return False

    def shape(self, port: str, impairment: Impairment, now: Ns) -> None:
        """Send by `port`, from now on, at the rate of this impairment."""
        self._catch_up(now)
        self._lines.revoke(self._ports[port], now)
        self._ports[port].shape(impairment)

    def hold(self, port: str, until: Ns, why: str, now: Ns) -> bool:
        """Let no frame begin to leave by `port` before `until`; say that this is done here."""
        self._catch_up(now)
        self._lines.hold(self._ports[port], until, why, now)
        return True

    @property
    def touched(self) -> Mapping[str, int]:
        """Say how many frames each hold has kept waiting, by its why."""
        return self._lines.touched

    def set_trimming(self, plan: TrimPlan | None, classes: Collection[int], now: Ns) -> None:
        """Trim what the queues of these classes refuse, as `plan` says; from now on.

        None: nobody trims. What waits stays as it is, and counters go on. Raise ValueError for
        a plan that cannot be, or a class that there is not; nothing has changed then.
        """
        self._catch_up(now)
        ports = self._ports.values()
        unknown = {*classes} - {queue.index for port in ports for queue in port.queues}
        if unknown:
            raise ValueError(f"trim: there is no queue {min(unknown)}")
        trimmers = [
            None if plan is None else Trimmer(plan, port.faces, len(port.queues))
            for port in ports
        ]
        for port, trimmer in zip(ports, trimmers, strict=True):
            port.trimmer = trimmer
            for queue in port.queues:
                queue.let_trim(queue.index in classes)
        self._express.forget()

    def set_carrier(self, port: str, is_up: bool) -> None:
        """Choose paths without `port`, whose link is down, or with it again."""
        self._forwarder.set_carrier(port, is_up)
        self._express.forget()

    def backlog(self, port: str) -> int:
        """Return how many bytes wait at a port: what path choice may ask."""
        self._lines.settle(self._ports[port], self._now)
        return sum(queue.account.used for queue in self._ports[port].queues)

    # -- the machine -----------------------------------------------------------------------

    def receive(self, port: str, frame: ReadBuffer, now: Ns) -> None:
        """Take one frame that came in by `port`. Keeps no view of it."""
        # bench: switch, sim. Nearly all frames begin as others did.
        if self._inside or self._lines.next <= now:
            self._catch_up(now)
        self._now = now
        ingress = self._ports[port]
        if not self._express.take(ingress, frame, now):
            self._receive_clearly(ingress, frame, now)

    def passer(self, name: str) -> Pass:
        """Return what takes frames that come in by a port, in place of `receive`.

        For an owner to whom all ports, or some, give frames early; to be asked for after that.
        """
        port = self._ports[name]
        if all(other.is_early for other in self._ports.values()):  # nothing happens by itself
            return partial(self._express.pass_on, port)
        return partial(self._pass_on, port)

    def _pass_on(self, ingress: Port, head: bytes, frame: bytes, now: Ns) -> Passed | bool:
        if self._lines.next <= now:
            self._catch_up(now)
        return self._express.pass_on(ingress, head, frame, now)

    def give_early(self, owners: Mapping[str, object]) -> list[str]:
        """Give the frames of these ports as soon as their departure is settled.

        The owner calls them as it likes. Return the ports of which that can be said of every
        frame; nobody may `shape` or `hold` these from then on. What a `passer` does not
        return is in `early`.
        """
        if not self._express.settles_all:
            return []
        for name, owner in owners.items():
            port = self._ports[name]
            port.is_early, port.owner = True, owner
        return list(owners)

    def early(self) -> list[Gone]:
        """Hand out what went the long way and is settled, by ports that give frames early."""
        gone, self._lines.early = self._lines.early, []
        return gone

    def is_empty(self, now: Ns) -> bool:
        """Say whether no frame is in the switch; all that is due must have happened."""
        self._lines.settle_all(now)
        return not self._inside and not any(port.held(now) for port in self._ports.values())

    def _receive_clearly(self, ingress: Port, frame: ReadBuffer, now: Ns) -> None:
        """Take a frame that nothing is known about."""
        index = self._classify(frame)
        if index < 0:
            if index == CONTROL:
                self._control(ingress, frame, now)
            else:
                self._refuse(ingress, "runt")
            return
        watchdog = ingress.queues[index].watchdog
        if watchdog is not None and watchdog.drops:
            ingress.queues[index].storm_drops += 1
            self._refuse(ingress, "storm")
            return
        verdict = self._forwarder.forward(ingress.name, frame, now)
        if isinstance(verdict, Decision):
            ingress.rx_ok += 1
            out, kept = self._ports[verdict.port], verdict.frame
            self._express.learn(ingress, frame, index, verdict)
            if kept is frame or isinstance(kept, memoryview):
                kept = bytes(kept)
            if self._latency:
                self._enter(out, index, kept, ingress, now)
            else:
                self._admit(out, index, kept, ingress, now)
        elif isinstance(verdict, Flood):
            ingress.rx_ok += 1
            self._flood(verdict, index, ingress)
        else:
            self._end(verdict, ingress)

    def expire(self, now: Ns) -> None:
        """Let everything happen that is due."""
        self._catch_up(now)
        self._lines.settle_all(now)

    def transmit(self, now: Ns) -> Iterator[tuple[str, ReadBuffer, FrameMeta]]:
        """Hand out what has left, and what has died on its way out (`FrameMeta.killed`)."""
        return self._lines.leave(now)

    @property
    def deadline(self) -> Ns | None:
        """When something happens by itself, or None."""
        soonest = min(self._lines.next, self._lines.leaves_at)
        if self._inside:
            soonest = min(soonest, self._inside[0][0])
        return None if soonest == NEVER else soonest

    def events(self) -> Iterable[HostEvent]:
        """Hand out what happened, in order, each event once."""
        return self._ledger.chronicle.drain()

    def tables(self) -> str:
        """Return a digest of the forwarding tables: what is up or learned is no part of it."""
        rows = "\n".join(sorted(self._forwarder.tables()))
        return blake2b(rows.encode(), digest_size=16).hexdigest()

    def report(self) -> NodeReport:
        """Return the counters; `netem.switch.report` says what they are called."""
        ledger, ports = self._ledger, self._ports.values()
        self._lines.settle_all(self._now)
        counters = {
            "received": sum(port.rx_ok + port.rx_drops for port in ports),
            "copies": self._copies,
            "originated": ledger.originated,
            "sent": sum(port.tx_ok - port.on_its_way(self._now) for port in ports),
            "dropped": ledger.dropped.total(),
            "consumed": self._consumed,
            "queued": len(self._inside) + sum(port.held(self._now) for port in ports),
        }
        counters |= {f"dropped_{why}": count for why, count in ledger.dropped.items()}
        counters |= self._forwarder.counters()
        counters |= counters_of(self._pool, ports, self._now)
        if ledger.chronicle.forgotten:
            counters["events_forgotten"] = ledger.chronicle.forgotten
        return NodeReport(node=self.name, counters=counters)

    # -- what comes in ---------------------------------------------------------------------

    def _refuse(self, ingress: Port, reason: str) -> None:
        """Count a frame that gets no further than where it came in."""
        ingress.rx_drops += 1
        self._ledger.dropped[reason] += 1

    def _control(self, ingress: Port, frame: ReadBuffer, now: Ns) -> None:
        """Take a MAC control frame, which is never forwarded; obey it if it is PFC."""
        self._consumed += 1
        ingress.rx_ok += 1
        try:
            pfc = Pfc.unpack_from(frame, ETHERNET.size)
        except DecodeError:
            ingress.mac_control += 1
            return
        self._lines.obey(ingress, pfc, now)

    def _flood(self, flood: Flood, index: int, ingress: Port) -> None:
        """Let a frame in once for each port that it leaves by."""
        frame = bytes(flood.frame)
        self._copies += len(flood.ports) - 1
        for port in flood.ports:
            self._enter(self._ports[port], index, frame, ingress, self._now)

    def _end(self, verdict: Drop | Punt, ingress: Port) -> None:
        """Let a frame end here; what the switch answers begins here."""
        if isinstance(verdict, Drop):
            self._refuse(ingress, verdict.reason)
        else:
            ingress.rx_ok += 1
            self._consumed += 1
        for port, answer in verdict.answers:
            self._ledger.originated += 1
            frame = bytes(answer)
            self._enter(self._ports[port], self._classify(frame), frame, None, self._now)

    # -- on its way ------------------------------------------------------------------------

    def _enter(
        self, out: Port, index: int, frame: ReadBuffer, ingress: Port | None, now: Ns
    ) -> None:
        """Let a frame into the switch; it gets to its queue when the latency is over."""
        if not self._latency:
            self._admit(out, index, frame, ingress, now)
        elif len(self._inside) < MOST_INSIDE:
            self._inside.append((now + self._latency, out, index, frame, ingress))
        else:
            self._ledger.drop(out, None, frame, "overrun", "too many frames in the switch")

    def _admit(
        self, out: Port, index: int, frame: ReadBuffer, ingress: Port | None, now: Ns
    ) -> None:
        queue, lines = out.queues[index], self._lines
        # bench: switch, sim. Whoever finds the line free goes at once.
        if (
            not out.is_awaited
            and queue.watchdog is None
            and len(frame) <= out.largest
            and lines.offer(out, queue, frame, NO_META, now)
        ):
            queue.offered += 1
            return
        source = None if ingress is None else ingress.lossless[index]
        if lines.waiting:
            lines.settle_all(now)
        held = self._admission.admit(out, queue, frame, source, now)
        if source is not None:
            lines.signal(source, now)
        if held is not None:
            target = held[2]
            assert target is not None
            lines.put(out, target, held, now)

    def _catch_up(self, now: Ns) -> None:
        """Let happen, each at its own time, what is due up to `now`."""
        self._now = now
        lines, inside = self._lines, self._inside
        while inside and inside[0][0] <= now:
            at, out, index, frame, ingress = inside.popleft()
            if lines.next <= at:  # what leaves at an instant makes room for what arrives then
                lines.run(at)
            self._admit(out, index, frame, ingress, at)
        if lines.next <= now:
            lines.run(now)
