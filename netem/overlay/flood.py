"""A flood of initiations that cost their receiver work: what a stranger can do to a gateway.

    python -m netem.overlay.flood fd00:ffff::2 51820 PUBLIC_KEY --rate 2000 --for 3

mac1 is right, which takes no more than the receiver's public key; the rest is noise. Says how
many cookie replies came back, and how much of anything else, which should be nothing.
"""

import socket
import time
from contextlib import suppress
from ipaddress import ip_address
from random import Random

import click

from transports.overlay.cookies import Macs
from transports.overlay.keys import from_base64
from transports.overlay.limits import Limits
from wire import wireguard
from wire.wireguard import COOKIE_REPLY, Initiation, MessageType

_STEP_S = 0.01  # so many seconds' messages leave together
_SETTLE_S = 0.2  # for the last answers


def initiation(macs: Macs, rng: Random) -> bytes:
    """Return an initiation that passes mac1 and then decrypts to nothing."""
    message = Initiation(
        rng.getrandbits(32), rng.randbytes(32), rng.randbytes(48), rng.randbytes(28)
    )
    packed = wireguard.packed(message)
    macs.add(packed, 0)
    return bytes(packed)


def flood(
    to: tuple[str, int], public: bytes, rate: int, seconds: float
) -> tuple[int, int, int]:
    """Send `rate` initiations a second; return how many, cookie replies, and other answers."""
    macs, rng = Macs(public, Limits()), Random(1)
    is_v6 = ip_address(to[0]).version == 6
    family = socket.AF_INET6 if is_v6 else socket.AF_INET
    sent = cookies = others = 0
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        start = time.monotonic()
        while (now := time.monotonic() - start) < seconds + _SETTLE_S:
            due = round(min(now, seconds) * rate)
            for _ in range(min(due - sent, rate)):
                sock.sendto(initiation(macs, rng), to)
                sent += 1
            with suppress(BlockingIOError, ConnectionRefusedError):
                while answer := sock.recv(2048, socket.MSG_DONTWAIT):
                    is_cookie = answer[0] == MessageType.COOKIE_REPLY
                    cookies += is_cookie and len(answer) == COOKIE_REPLY.size
                    others += not is_cookie
            time.sleep(_STEP_S)
    return sent, cookies, others


@click.command()
@click.argument("address")
@click.argument("port", type=click.IntRange(1, 65535))
@click.argument("public_key")
@click.option("--rate", default=1000, show_default=True, help="initiations a second")
@click.option("--for", "seconds", default=1.0, show_default=True, help="seconds")
def main(address: str, port: int, public_key: str, rate: int, seconds: float) -> None:
    """Flood a WireGuard node with initiations; exit code 1 if it said anything but cookies."""
    try:
        public = from_base64(public_key)
        ip_address(address)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    sent, cookies, others = flood((address, port), public, rate, seconds)
    click.echo(f"{sent} initiations, {cookies} cookie replies, {others} other answers")
    raise SystemExit(1 if others else 0)


if __name__ == "__main__":
    main()
