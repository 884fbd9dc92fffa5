"""What is below a queue pair: a machine, and the sockets that carry its packets.

    FrameLink   whole frames of an interface, IPv4 and IPv6, any impairment and capture sees
                them byte by byte; needs CAP_NET_RAW, which root of a lab's namespace has
    UdpLink     payloads of the kernel's UDP, IPv6 only, in trains; needs no rights at all

A link does a bounded amount per call and never blocks. The kernel's own stack goes on beside
it: it answers ARP and carries TCP under the same address.
"""

import random
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from ipaddress import ip_address
from struct import Struct
from typing import Protocol

from netem.sockets.packet import BATCH, PacketSocket
from netem.sockets.udp import UdpSocket
from netem.verbs.neighbours import Interface, mac_of
from transports.clock import Ns
from transports.roce.datagram import Datagram, DatagramDevice
from transports.roce.device import Device
from transports.roce.port import DeviceConfig, Port
from wire.ethernet import ETHERNET, VLAN, Ethernet, EtherType
from wire.ipv4 import Protocol as IpProtocol
from wire.roce.packet import UDP_PORT

_U16 = Struct("!H")
_TAG = EtherType.VLAN.to_bytes(2, "big")
_V4, _V6 = EtherType.IPV4.value, EtherType.IPV6.value
_UDP = IpProtocol.UDP.value
_MOST_NEIGHBOURS = 4096


class VerbsError(Exception):
    """Something that this API cannot do, in one line: what, and what can be done."""


class Link(Protocol):
    """A machine on its sockets."""

    @property
    def machine(self) -> Port:
        """The port whose packets these are."""

    def fileno(self) -> int:
        """Return the descriptor to wait for, readable."""

    def take(self, now: Ns, /) -> bool:
        """Receive a bounded number of packets; say whether there may be more."""

    def give(self, now: Ns, /) -> bool:
        """Send a bounded number of packets; say whether there is more."""

    def blocked(self) -> int | None:
        """Return the descriptor that must become writable before more is sent, if any."""

    async def resolve(self, remote: bytes, /) -> None:
        """Find out how packets for `remote` are addressed; KernelError where nobody answers."""

    def counters(self) -> dict[str, int]:
        """Return what was lost between the machine and the kernel."""

    def close(self) -> None:
        """Close every socket."""


class FrameLink:
    """A NIC port on a packet socket."""

    def __init__(
        self,
        addresses: Sequence[str],
        interface: Interface,
        config: DeviceConfig,
        rng: random.Random,
    ) -> None:
        """Open `interface`. OSError where the host refuses."""
        self.interface = interface
        self._device = Device(config, rng)
        self._headers: dict[bytes, bytes] = {}  # Ethernet, by the IP address it leads to
        self._unresolved = 0  # packets for whom nobody knows the MAC
        self._waiting: deque[bytes] = deque()  # frames for which the kernel had no room
        with ExitStack() as stack:
            self._socket = stack.enter_context(PacketSocket(self.interface.name))
            for address in addresses:
                # Heard by nobody: without it the kernel would tell peers that nobody is there.
                stack.enter_context(UdpSocket(address, UDP_PORT, trains=False, buffer=0))
            self._stack = stack.pop_all()

    @property
    def machine(self) -> Device:
        return self._device

    def fileno(self) -> int:
        return self._socket.fileno()

    def take(self, now: Ns) -> bool:
        frames = self._socket.receive(BATCH)
        receive = self._device.receive
        for whole in frames:
            frame = whole if _is_roce(whole) else _untagged(whole)
            if frame is not None:
                if _is_for_gsi(frame):
                    self._learn(frame)
                receive(frame[ETHERNET.size :], now)
        return len(frames) == BATCH

    def give(self, now: Ns) -> bool:
        waiting, headers = self._waiting, self._headers
        if not waiting:
            for out in self._device.transmit(now):
                packet = out.packet
                remote = packet[16:20] if packet[0] >> 4 == 4 else packet[24:40]
                header = headers.get(remote)
                if header is None:  # an answer to a message that has come by other ways
                    self._unresolved += 1
                    continue
                waiting.append(header + packet)
                if len(waiting) == BATCH:
                    break
        sent = self._socket.send_all(tuple(waiting))
        for _ in range(sent):
            waiting.popleft()
        return sent == BATCH

    def _learn(self, frame: memoryview) -> None:
        """Remember who sent a message to queue pair 1: it will be answered, unasked.

        Limit: 4096 neighbours; more are not answered.
        """
        remote = bytes(frame[26:30] if frame[14] >> 4 == 4 else frame[22:38])
        if remote not in self._headers and len(self._headers) < _MOST_NEIGHBOURS:
            kind = EtherType.IPV4 if len(remote) == 4 else EtherType.IPV6
            header = bytearray(ETHERNET.size)
            Ethernet(bytes(frame[6:12]), self.interface.mac, kind).pack_into(header)
            self._headers[remote] = bytes(header)

    def blocked(self) -> int | None:
        return self._socket.fileno() if self._waiting else None

    async def resolve(self, remote: bytes) -> None:
        if remote in self._headers:
            return
        mac = await mac_of(str(ip_address(remote)), self.interface.name)
        header = bytearray(ETHERNET.size)
        kind = EtherType.IPV4 if len(remote) == 4 else EtherType.IPV6
        Ethernet(mac, self.interface.mac, kind).pack_into(header)
        self._headers[remote] = bytes(header)

    def counters(self) -> dict[str, int]:
        sock = self._socket
        return {
            "receive_drops": sock.receive_drops(),
            "send_drops": sock.send_drops,
            "unresolved": self._unresolved,
            "oversized_frames": sock.oversized,
        }

    def close(self) -> None:
        self._stack.close()


def _is_roce(frame: memoryview) -> bool:
    """Say whether a frame is for the machine, and not for the kernel beside it. Total."""
    if len(frame) < ETHERNET.size + 24:
        return False
    kind = _U16.unpack_from(frame, 12)[0]
    if kind == _V4 and frame[23] == _UDP:
        port = ETHERNET.size + (frame[14] & 0xF) * 4 + 2
    elif kind == _V6 and frame[20] == _UDP:
        port = ETHERNET.size + 42
    else:
        return False
    return len(frame) >= port + 2 and _U16.unpack_from(frame, port)[0] == UDP_PORT


def _untagged(frame: memoryview) -> memoryview | None:
    """Return a RoCE frame without its 802.1Q tag, where that only says a priority; else None.

    Annex A17: such a packet is treated as any. Total.
    """
    tci = int.from_bytes(frame[14:16])
    if frame[12:14] != _TAG or tci & 0xFFF:
        return None
    rest = memoryview(bytes(frame[:12]) + bytes(frame[12 + VLAN.size :]))
    return rest if _is_roce(rest) else None


def _is_for_gsi(frame: memoryview) -> bool:
    """Say whether a RoCE frame is for queue pair 1."""
    dest_qp = 47 if frame[14] >> 4 == 4 else 67
    return bytes(frame[dest_qp : dest_qp + 3]) == b"\0\0\1"


class UdpLink:
    """A NIC port on UDP sockets: one that receives, and one for each source port used."""

    def __init__(self, address: str, config: DeviceConfig, rng: random.Random) -> None:
        """Bind to `address`, of IPv6. OSError where it is not to be had."""
        self._address = address
        self._own_ip = ip_address(address).packed
        self._device = DatagramDevice(config, rng)
        self._stack = ExitStack()
        self._receiver = self._stack.enter_context(UdpSocket(address, UDP_PORT))
        self._senders: dict[int, UdpSocket] = {}
        self._waiting: Datagram | None = None

    @property
    def machine(self) -> DatagramDevice:
        return self._device

    def fileno(self) -> int:
        return self._receiver.fileno()

    def take(self, now: Ns) -> bool:
        device = self._device
        for _ in range(BATCH):
            try:
                data, segment, source, port, _ = self._receiver.receive()
            except BlockingIOError:
                return False
            ip = ip_address(source.partition("%")[0]).packed
            device.receive_train(data, segment, ip, port, self._own_ip, now)
        return True

    def give(self, now: Ns) -> bool:
        if self._waiting is not None and not self._send(self._waiting):
            return False
        self._waiting = None
        for number, datagram in enumerate(self._device.transmit_datagrams(now), 1):
            if not self._send(datagram):
                self._waiting = datagram
                return False
            if number == BATCH:
                return True
        return False

    def blocked(self) -> int | None:
        return None if self._waiting is None else self._sender(self._waiting.src_port).fileno()

    async def resolve(self, remote: bytes) -> None:
        """Leave it to the kernel."""

    def counters(self) -> dict[str, int]:
        sockets = (self._receiver, *self._senders.values())
        return {
            "receive_drops": self._receiver.receive_drops(),
            "send_drops": sum(sock.send_drops for sock in sockets),
        }

    def close(self) -> None:
        self._stack.close()

    def _send(self, out: Datagram) -> bool:
        address = str(ip_address(out.dst_ip))
        return self._sender(out.src_port).send(
            out.payload, out.segment_size, address, UDP_PORT, out.traffic_class
        )

    def _sender(self, port: int) -> UdpSocket:
        sock = self._senders.get(port)
        if sock is None:
            sock = self._stack.enter_context(UdpSocket(self._address, port))
            self._senders[port] = sock
        return sock
