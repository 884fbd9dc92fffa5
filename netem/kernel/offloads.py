"""What an interface does to packets on its own account: ethtool features, by ioctl.

A veth delivers what the sender's stack handed it: superframes of 64 KiB whose checksum is left
for hardware to finish. That is no packet of any wire. Byte-accurate links have all of it off.
Links for trains of UDP segments keep what is true to the wire: the *sender's* stack cuts trains
into real frames, checksums finished (`tx` off, `tx-udp-segmentation` off), and the *receiver*
may join what arrived back together (`gro` on, `rx-udp-gro-forwarding` on).

Kernel documentation: networking/ethtool-netlink, and include/uapi/linux/ethtool.h.
"""

import array
import fcntl
import socket
from collections.abc import Mapping
from struct import Struct

from netem.kernel.run import KernelError

_SIOCETHTOOL = 0x8946
_ETHTOOL_GSTRINGS = 0x1B
_ETHTOOL_GSSET_INFO = 0x37
_ETHTOOL_GFEATURES = 0x3A
_ETHTOOL_SFEATURES = 0x3B
_ETH_SS_FEATURES = 4
_NAME = 32  # ETH_GSTRING_LEN

_IFREQ = Struct("16sP16x")
_SSET_INFO = Struct("=IIQI")  # command | reserved | mask of sets | size of the one set
_GSTRINGS = Struct("=III")  # command | set | count; names follow
_GFEATURES = Struct("=II")  # command | count of words; blocks follow
_BLOCK = Struct("=IIII")  # available | requested | active | never changed
_SBLOCK = Struct("=II")  # valid | requested

# What `ethtool -K` calls a group, and the features of the kernel's that it stands for.
GROUPS = {
    "rx": ("rx-checksum",),
    "tx": ("tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6",
           "tx-checksum-sctp"),
    "sg": ("tx-scatter-gather", "tx-scatter-gather-fraglist"),
    "tso": ("tx-tcp-segmentation", "tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation",
            "tx-tcp6-segmentation", "tx-tcp-accecn-segmentation"),
    "gso": ("tx-generic-segmentation",),
    "gro": ("rx-gro",),
    "lro": ("rx-lro",),
    "rxvlan": ("rx-vlan-hw-parse",),
    "txvlan": ("tx-vlan-hw-insert",),
}  # fmt: skip

BYTE_ACCURATE: Mapping[str, bool] = {
    "tx": False,
    "sg": False,
    "tso": False,
    "gso": False,
    "gro": False,
    "tx-udp-segmentation": False,
    "rx-udp-gro-forwarding": False,
    "rxvlan": False,
    "txvlan": False,
    "rx-vlan-stag-hw-parse": False,
    "tx-vlan-stag-hw-insert": False,
}
TRAINS: Mapping[str, bool] = {
    "tx": False,
    "sg": True,  # on which gso depends
    "tso": False,
    "gso": True,
    "gro": True,
    "tx-udp-segmentation": False,
    "rx-udp-gro-forwarding": True,
    "rxvlan": False,
    "txvlan": False,
    "rx-vlan-stag-hw-parse": False,
    "tx-vlan-stag-hw-insert": False,
}


def command(interface: str, settings: Mapping[str, bool]) -> tuple[str, ...]:
    """Return the command that a person would type, if the host has that program."""
    words = [word for name, on in settings.items() for word in (name, "on" if on else "off")]
    return ("ethtool", "-K", interface, *words)


class Offloads:
    """Reads and sets features through one control socket, in the namespace that it is of."""

    def __init__(self, control: socket.socket, where: str = "") -> None:
        """`where` is what messages call the namespace."""
        self._control = control
        self._where = where
        self._names: tuple[str, ...] = ()  # of the features, by bit; one list for a kernel

    def read(self, interface: str) -> dict[str, bool]:
        """Return all features of an interface by the kernel's own names, on or off."""
        names = self._feature_names(interface)
        blocks = self._blocks(interface, len(names))
        return {
            name: bool(blocks[bit // 32][2] >> bit % 32 & 1)
            for bit, name in enumerate(names)
            if name
        }

    def write(self, interface: str, settings: Mapping[str, bool]) -> None:
        """Set features, by group or by name; one that this kernel lacks is off and stays so.

        Raises KernelError where a feature then is not as asked, unless it cannot be changed
        on this interface at all.
        """
        names = self._feature_names(interface)
        wanted = {
            names.index(name): on
            for group, on in settings.items()
            for name in GROUPS.get(group, (group,))
            if name in names
        }
        words = len(self._blocks(interface, len(names)))
        valid, requested = [0] * words, [0] * words
        for bit, on in wanted.items():
            valid[bit // 32] |= 1 << bit % 32
            requested[bit // 32] |= on << bit % 32
        request = bytearray(_GFEATURES.pack(_ETHTOOL_SFEATURES, words))
        for pair in zip(valid, requested, strict=True):
            request += _SBLOCK.pack(*pair)
        self._ioctl(interface, request)
        after = self._blocks(interface, len(names))
        for bit, on in wanted.items():
            available, _, active, never = (word >> bit % 32 & 1 for word in after[bit // 32])
            if active != on and available and not never:
                raise KernelError(
                    command(interface, settings),
                    1,
                    f"{names[bit]} stays as it was",
                    self._where,
                )

    def _feature_names(self, interface: str) -> tuple[str, ...]:
        if not self._names:
            info = self._ioctl(
                interface,
                bytearray(_SSET_INFO.pack(_ETHTOOL_GSSET_INFO, 0, 1 << _ETH_SS_FEATURES, 0)),
            )
            count = _SSET_INFO.unpack(info)[3]
            head = _GSTRINGS.pack(_ETHTOOL_GSTRINGS, _ETH_SS_FEATURES, count)
            answer = self._ioctl(interface, bytearray(head + bytes(_NAME * count)))
            self._names = tuple(
                answer[at : at + _NAME].partition(b"\0")[0].decode()
                for at in range(_GSTRINGS.size, len(answer), _NAME)
            )
        return self._names

    def _blocks(self, interface: str, features: int) -> list[tuple[int, ...]]:
        words = (features + 31) // 32
        head = _GFEATURES.pack(_ETHTOOL_GFEATURES, words)
        answer = self._ioctl(interface, bytearray(head + bytes(_BLOCK.size * words)))
        return list(_BLOCK.iter_unpack(answer[_GFEATURES.size :]))

    def _ioctl(self, interface: str, request: bytearray) -> bytes:
        memory = array.array("B", request)
        address, _ = memory.buffer_info()
        try:
            fcntl.ioctl(self._control, _SIOCETHTOOL, _IFREQ.pack(interface.encode(), address))
        except OSError as error:
            argv = ("ethtool", "-k", interface)
            raise KernelError(argv, error.errno or 1, str(error), self._where) from error
        return memory.tobytes()
