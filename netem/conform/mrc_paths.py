"""What both ends of an MRC case know: addresses by plane, entropy values, reserved bits.

An entropy value is `stev32` of the profile mrc-emu/1 (12.4): hop0 in its ten highest bits
counts the ways of a plane, a salt of 0x55 stands above the plane in the three lowest.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import NamedTuple

from netem.conform.notation import WordError

HOST = frozenset({"PORTS", "EV_PROBE", "EV_ANSWER"})  # of one host to another
_SALT = 0x55 << 3
_BTH = ((4, 0xFF), (8, 0x4F))
# Offsets from the BTH and masks of the bits that the tables call reserved: OCP MRC 1.0, tables
# 6-3 to 6-9 and 7-10 to 7-23 (as cited), by the layouts of mrc.md 3.
RESERVED: Mapping[str, tuple[tuple[int, int], ...]] = {
    "WRITE": (*_BTH, (18, 0x7F), (19, 0xF0)),
    "ACK": _BTH,
    "SACK": (*_BTH, (13, 0x1D), (24, 0xFF), (42, 0x80)),
    "NACK": (*_BTH, (13, 0x7F), (24, 0xFF), (29, 0xFF)),
    "PROBE": (*_BTH, (13, 0x7F), (14, 0xFF), (18, 0xFF), (19, 0xFF), (26, 0x7F), (27, 0xF0)),
    "PORTS": (*_BTH, (13, 0x7C), (14, 0xFF), (20, 0xFF), (23, 0xFF), (26, 0x7F), (27, 0xF0)),
    "EV_PROBE": (*_BTH, (13, 0x7C), (14, 0xFF), (20, 0xFF), (26, 0x7F), (27, 0xF0)),
    "EV_ANSWER": (*_BTH, (13, 0x73), (14, 0xFF), (39, 0xFF), (42, 0xFF), (47, 0xFF)),
}


def reserved_of(name: str) -> tuple[tuple[int, int], ...]:
    """Return offset from the BTH and mask of each byte of a packet that has reserved bits."""
    return RESERVED["WRITE" if name.startswith("WRITE_") else name]


def peer_ip(plane: int) -> bytes:
    """Return the suite's address on a plane."""
    return ip_address(f"fd00:{plane:x}::1").packed


def own_ip(plane: int) -> bytes:
    """Return the endpoint's address on a plane."""
    return ip_address(f"fd00:{plane:x}::2").packed


def path(number: int, plane: int = 0) -> int:
    """Return the entropy value of path `number` of a plane."""
    return number << 22 | _SALT | plane


def number_of(ev: int) -> int:
    """Return which path of its plane an entropy value is."""
    return ev >> 22


def plane_of(ev: int) -> int:
    """Return the plane that an entropy value is of."""
    return ev & 7


class Transmission(NamedTuple):
    """What an answer to a packet of the endpoint reflects of it."""

    ev: int
    tx: int


@dataclass(slots=True)
class MrcHeld:
    """What the suite's end has seen in a case; it grows with the case and no further."""

    names: dict[str, int] = field(default_factory=dict)  # EVs that lines have named
    latest: dict[int, Transmission] = field(default_factory=dict)  # by PSN
    probe: Transmission = field(default_factory=lambda: Transmission(path(0), 0))
    probe_id: int = 0  # of the last probe, of a queue pair or of the endpoint
    down: int = 0  # mask of planes of which either end has said that its port is down

    def named(self, text: str) -> Iterator[int]:
        """Yield the EVs of names, as in `A,B`. WordError for one that no line has named."""
        for name in text.split(","):
            if name not in self.names:
                raise WordError(f"{name} names no EV: a line says ev={name} first")
            yield self.names[name]
