"""The simulator as a target: our machines and their wires, in virtual time."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from ipaddress import ip_address

from netem.conform.endpoint import MACS, PEER_KEY, PEER_VA, Joined, Session, Side, Wants
from netem.conform.families import FAMILIES
from netem.conform.notation import Case
from netem.conform.own import OwnApplication
from netem.conform.virtual import VirtualTime, VirtualWire
from transports.clock import MS, Ns, S
from transports.roce.device import Device, DeviceConfig
from wire.ethernet import ETHERNET, VLAN, Ethernet, EtherType

ADDRESSES = {
    4: (ip_address("198.18.0.1").packed, ip_address("198.18.0.2").packed),
    6: (ip_address("fd00::1").packed, ip_address("fd00::2").packed),
}
_MOST_TURNS = 100_000  # of application and device: more means that neither ever has enough


class SimTarget:
    """A port of ours per case, in no process and on no socket."""

    name = "sim"

    @contextmanager
    def session(
        self,
        case: Case,  # noqa: ARG002 - ours can be anything
        wants: Wants,
        number: int,
    ) -> Iterator[Session]:
        family = FAMILIES.get(wants.service)
        if family is not None:
            machine, own = family.make(wants, None)
            joined = family.joined(wants, number, own.open(asdict(wants)))
            own.connect(peer_of(joined.ours, joined.theirs))
            yield Session(joined, machine, own, is_real=False)
            return
        device = Device(DeviceConfig((ADDRESSES[6][1], ADDRESSES[4][1])), random.Random(number))
        wire = SimWire(device)
        application = OwnApplication(device, wire.now)
        wire.application = application
        opened = application.open(asdict(wants))
        peer_ip, own_ip = ADDRESSES[wants.ip or 6]
        ours = Side(MACS[0], peer_ip, 0x100000 + number, PEER_VA, PEER_KEY)
        theirs = Side(MACS[1], own_ip, opened["qp_num"], opened["va"], opened["key"])
        application.connect(peer_of(ours, theirs))
        yield Session(
            Joined(wants, ours, theirs, comm=comm_of(number)), wire, application, is_real=False
        )


def comm_of(number: int) -> int:
    """Return the communication ID of the suite's end in a case; the next one is free, too."""
    return 0x4000_0000 + 2 * number


def peer_of(ours: Side, theirs: Side) -> dict[str, int | str]:
    """Return what an application must know of the suite's end."""
    return {
        "ip": str(ip_address(ours.ip)),
        "own_ip": str(ip_address(theirs.ip)),
        "qp_num": ours.qp_num,
        "va": ours.va,
        "key": ours.key,
    }


class SimWire(VirtualWire):
    """Frames to and from one device."""

    patience: Ns = 2 * S
    quiet: Ns = 1 * MS

    def __init__(self, device: Device) -> None:
        super().__init__(VirtualTime())
        self.application: OwnApplication | None = None
        self._device = device

    def send(self, frame: bytes) -> None:
        packet = _packet(frame)
        if packet is not None:
            self._device.receive(packet, self.now())

    def _deadline(self) -> Ns | None:
        dues = [self._device.deadline]
        if self.application is not None:
            dues.append(self.application.deadline)
        return min((due for due in dues if due is not None), default=None)

    def _expire(self) -> None:
        self._device.expire(self.now())
        if self.application is not None:
            self.application.expire(self.now())

    def _drain(self) -> None:
        for _ in range(_MOST_TURNS):
            if not self._drain_once():
                return

    def _drain_once(self) -> bool:
        """Take what the device has; say whether its application may have made more of it."""
        has_more = False
        for outgoing in self._device.transmit(self.now()):
            packet = outgoing.packet
            kind = EtherType.IPV4 if packet[0] >> 4 == 4 else EtherType.IPV6
            frame = bytearray(ETHERNET.size)
            Ethernet(MACS[0], MACS[1], kind).pack_into(frame)
            self._sent(bytes(frame) + bytes(packet))
        for event in self._device.events():
            has_more = True
            if self.application is not None:
                self.application.take(event)
        return has_more


def _packet(frame: bytes) -> bytes | None:
    """Return the IP packet of a frame to the endpoint, with or without a priority tag."""
    tagged = frame[12:14] == EtherType.VLAN.to_bytes(2, "big")
    vid = int.from_bytes(frame[14:16]) & 0xFFF if tagged else 0
    if frame[:6] != MACS[1] or vid:
        return None
    return frame[ETHERNET.size + VLAN.size * tagged :]
