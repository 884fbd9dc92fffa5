"""A guest with Soft-RoCE behind a TAP in a namespace of ours: one cable, two ends.

    our sockets -- kernel of the host --+-- t0 ~~ QEMU ~~ eth0 -- rxe0 -- ibv_rc_pingpong, ...
    (TCP, ARP)     in a sandbox         |
    Device ------- packet socket -------+

The kernel of the host answers ARP and speaks TCP for the address that our device uses, too. A
UDP socket keeps it from telling the guest that nobody listens on RoCE's port.
"""

import contextlib
import ipaddress
import select
import socket
import time
from collections.abc import Callable
from typing import Self

from netem.guest.image import image
from netem.guest.machine import Guest
from netem.kernel.namespaces import inside
from netem.kernel.run import run
from netem.kernel.sandbox import Sandbox, hold
from netem.sockets.packet import PacketSocket
from transports.roce.device import Device
from transports.roce.events import Event
from wire.ethernet import ETHERNET, Ethernet, EtherType
from wire.ipv4 import Protocol
from wire.roce.packet import UDP_PORT

OURS = {4: "192.0.2.1", 6: "2001:db8::1"}
GUEST = {4: "192.0.2.2", 6: "2001:db8::2"}
_PREFIX = {4: 24, 6: 64}
_OUR_MAC, _GUEST_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"

# Finished checksums and whole packets only: what is on this cable is what a wire would carry.
_PLAIN_CARD = ",".join(
    f"{name}=off"
    for name in (
        *("csum", "gso", "host_tso4", "host_tso6", "host_ecn", "host_ufo"),
        *("guest_csum", "guest_tso4", "guest_tso6", "guest_ecn", "guest_ufo"),
    )
)
_CARD = (
    *("-netdev", "tap,id=net,ifname=t0,script=no,downscript=no,vnet_hdr=off"),
    *("-device", f"virtio-net-pci,netdev=net,mac={_GUEST_MAC},romfile=,{_PLAIN_CARD}"),
)
_MODULES = ("virtio_net", "crc32c_generic", "crc32_generic", "rdma_rxe")


class Cable:
    """The guest, and our end of the cable to it."""

    def __init__(self) -> None:
        image()  # made outside of the sandbox, from which no network can be reached
        with contextlib.ExitStack() as stack:
            self._sandbox = stack.enter_context(Sandbox.enter(lambda _: hold()))
            stack.enter_context(inside(self._sandbox.pid))
            run(("ip", "tuntap", "add", "dev", "t0", "mode", "tap"))
            run(("ip", "link", "set", "dev", "t0", "address", _OUR_MAC))
            run(("ip", "-batch", "-"), stdin=_addresses("t0", OURS))
            self.guest = stack.enter_context(Guest(modules=_MODULES, devices=_CARD))
            self.guest.run("ip", "-batch", "-", stdin=_addresses("eth0", GUEST))
            self.guest.run("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "eth0")
            self._frames = stack.enter_context(PacketSocket("t0"))
            deaf = stack.enter_context(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
            deaf.bind(("::", UDP_PORT))
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def gid_index(self, family: int) -> str:
        """Return the place of the guest's address in its GID table."""
        address = ipaddress.ip_address(GUEST[family])
        for index in range(8):
            path = f"/sys/class/infiniband/rxe0/ports/1/gids/{index}"
            gid = ipaddress.IPv6Address(self.guest.run("busybox", "cat", path).strip())
            if address in {gid, gid.ipv4_mapped}:
                return str(index)
        raise AssertionError(f"the guest has no GID for {address}")

    def drive(
        self,
        device: Device,
        react: Callable[[Event], None],
        is_done: Callable[[], bool],
        limit_s: float = 60.0,
    ) -> None:
        """Run `device` on the cable until all is done."""
        start = time.monotonic_ns()
        poll = select.poll()
        poll.register(self._frames, select.POLLIN)
        while not is_done():
            now = time.monotonic_ns()
            assert now - start < limit_s * 1e9, f"not done after {limit_s:.0f} s"
            for frame in self._frames.receive():
                if _is_udp(frame):
                    device.receive(frame[ETHERNET.size :], now)
            device.expire(now)
            for event in device.events():
                react(event)
            for out in device.transmit(now):
                self._send(out.packet)
            wait = 20_000_000 if device.deadline is None else device.deadline - now
            poll.poll(min(max(wait, 0), 20_000_000) / 1e6)

    def _send(self, packet: bytes) -> None:
        ethertype = EtherType.IPV4 if packet[0] >> 4 == 4 else EtherType.IPV6
        header = Ethernet(_mac(_GUEST_MAC), _mac(_OUR_MAC), ethertype)
        frame = bytearray(header.size + len(packet))
        header.pack_into(frame)
        frame[header.size :] = packet
        assert self._frames.send(frame)


def _addresses(ifname: str, addresses: dict[int, str]) -> str:
    lines = [f"link set dev {ifname} mtu 4200 up"]
    for family, address in addresses.items():
        lines.append(f"addr add {address}/{_PREFIX[family]} dev {ifname} nodad")
    return "".join(f"{line}\n" for line in lines)


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def _is_udp(frame: memoryview) -> bool:
    """Say whether the frame is for the device, and not for the kernel beside it."""
    protocol = {EtherType.IPV4: 23, EtherType.IPV6: 20}.get(
        Ethernet.unpack_from(frame).ethertype
    )
    return protocol is not None and frame[protocol] == Protocol.UDP
