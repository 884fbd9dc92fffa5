"""Frames that nobody should have sent, for one who is called h0 or h1 here."""

from collections.abc import Iterator
from random import Random

from tests.netem.conftest import IPS, MAC, Make
from tests.wire.roce.evidence import captures, frames
from wire.checksum import internet_checksum
from wire.roce.opcodes import OPCODES, Opcode
from wire.roce.packet import locate

NOBODY = 0xFFFFF0  # a queue pair that no plan gives out
_MAKE = Make()


def garbage(victim: str, qps: list[int], seed: int, count: int) -> Iterator[bytes]:
    """Yield `count` frames that reach the driver of `victim`, and that it must refuse.

    They are of five kinds in turn: noise; whole packets to queue pairs that are not there;
    packets to those that are, with a wrong ICRC and bits flipped anywhere; packets cut at any
    byte; and packets captured elsewhere, readdressed and damaged.
    """
    rng = Random(seed)
    foreign = [frame for path in captures() for frame in frames(path)]
    kinds = [noise, unknown, damaged, cut, *([elsewhere] if foreign else [])]
    for number in range(count):
        frame = kinds[number % len(kinds)](rng, victim, qps, foreign)
        yield frame[:1500]


def noise(rng: Random, victim: str, *_: object) -> bytes:
    """Any bytes behind an Ethernet header that is meant for the victim, or for everybody."""
    target = rng.choice((MAC[victim], b"\xff" * 6, b"\x33\x33" + rng.randbytes(4)))
    ethertype = rng.choice((b"\x86\xdd", b"\x08\x00", b"\x08\x06", rng.randbytes(2)))
    return target + rng.randbytes(6) + ethertype + rng.randbytes(rng.randrange(200))


def unknown(rng: Random, victim: str, *_: object) -> bytes:
    """A packet with nothing wrong but its destination queue pair."""
    opcode = rng.choice(
        (Opcode.RC_WRITE_ONLY, Opcode.RC_SEND_ONLY, Opcode.RC_READ_REQUEST, Opcode.RC_FETCH_ADD)
    )
    payload = rng.randbytes(rng.randrange(1024))
    return _MAKE.request(opcode, rng.getrandbits(24), payload, source=_peer(victim), qp=NOBODY)


def damaged(rng: Random, victim: str, qps: list[int], *_: object) -> bytes:
    """A packet to a queue pair that is there, of any opcode, damaged."""
    opcode = rng.choice((Opcode.RC_WRITE_MIDDLE, Opcode.RC_SEND_LAST, Opcode.RC_SEND_FIRST))
    payload = rng.randbytes(rng.randrange(1024))
    frame = bytearray(
        _MAKE.request(
            opcode, rng.getrandbits(24), payload, source=_peer(victim), qp=rng.choice(qps)
        )
    )
    frame[-1] ^= 0xFF  # of the ICRC: no flip elsewhere makes it right
    frame[62] = rng.choice((*OPCODES, rng.randrange(256)))  # the opcode
    for _ in range(rng.randrange(4)):
        bit = rng.randrange(12 * 8, (len(frame) - 4) * 8)
        frame[bit >> 3] ^= 1 << (bit & 7)
    return bytes(frame)


def cut(rng: Random, victim: str, qps: list[int], *_: object) -> bytes:
    """A packet that ends early, wherever that is."""
    frame = _MAKE.write("ONLY", rng.getrandbits(24), source=_peer(victim), qp=rng.choice(qps))
    return frame[: rng.randrange(14, len(frame) - 1)]


def elsewhere(rng: Random, victim: str, _qps: list[int], foreign: list[bytes]) -> bytes:
    """A packet of a kernel's Soft-RoCE, sent to the victim's Ethernet address, damaged."""
    frame = bytearray(MAC[victim] + MAC[_peer(victim)] + rng.choice(foreign)[12:])
    for _ in range(rng.randrange(3)):
        frame[rng.randrange(12, len(frame))] = rng.randrange(256)
    return bytes(frame)


def for_the_kernel(frame: bytes, victim: str) -> bytes:
    """Return the frame with headers that a kernel passes on to the socket of RoCE.

    What is behind the UDP header stays; the frame is addressed to the victim's port 4791.
    """
    try:
        _, _, start, _ = locate(frame)
        payload = frame[start:]
    except Exception:  # noqa: BLE001 - any bytes will do
        payload = frame[14:]
    made = bytearray(_MAKE.udp(_peer(victim), victim, payload))
    source, target = IPS[6][_peer(victim)], IPS[6][victim]
    pseudo = source + target + len(made[54:]).to_bytes(4, "big") + b"\0\0\0\x11"
    checksum = internet_checksum(pseudo + made[54:]) or 0xFFFF  # zero would be none
    made[60:62] = checksum.to_bytes(2, "big")
    return bytes(made)


def _peer(victim: str) -> str:
    return "h0" if victim == "h1" else "h1"
