"""A tunnel without a lab: one interface of the present namespace, in wall time.

What `wg`, wg-quick and tests speak to. `Standalone` opens everything and runs in trio beside
whatever else its owner does: a UAPI socket, for instance, which calls `settings`, `rebind` and
`set_mark` of its driver and then `nudge`.
"""

import errno
import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from random import Random
from typing import Self

from netem.clock import RealClock
from netem.host.tunnel import TunnelMachine
from netem.impair.schedule import NOTHING
from netem.kernel import links
from netem.kernel.namespaces import control_socket
from netem.node.turns import Turns
from netem.overlay.driver import TunnelDriver, segments
from netem.overlay.outer import Outer
from netem.sockets.timer import Timer, be_punctual
from netem.sockets.tun import Tun
from transports.overlay.state import TunnelConfig
from transports.overlay.tunnel import Tunnel

GONE = frozenset({errno.EBADFD, errno.EIO, errno.ENODEV, errno.ENXIO})


class Standalone:
    """One interface. It has no key, no peer and no address until somebody sets them."""

    def __init__(
        self,
        interface: str,
        *,
        config: TunnelConfig | None = None,
        port: int = 0,
        fragments: bool = False,
        offloads: bool = True,
        trains: bool = True,
        names: Mapping[bytes, str] | None = None,
        tell: Callable[[object], None] = lambda _: None,
        keep_secrets: Callable[[str], None] | None = None,
    ) -> None:
        """Make the interface, or attach to it. Raises OSError where the host refuses.

        `config` says what the tunnel does; its MTU is that of the interface, where there is
        none. `offloads`: TCP in large pieces, see `driver`. Without `trains`
        datagrams leave one by one. `tell` gets HostEvents.
        """
        be_punctual()
        self._stack = ExitStack()
        with ExitStack() as opening:
            tun = opening.enter_context(Tun(interface))
            outer = opening.enter_context(Outer(port, fragments=fragments, trains=trains))
            turns = opening.enter_context(Turns(opening.enter_context(Timer())))
            if config is None:
                with control_socket() as control:
                    config = TunnelConfig(mtu=links.mtu(control, interface))
            if offloads:
                segments()  # now, and not while TCP waits
                tun.set_offloads()
            seed = int.from_bytes(os.urandom(8), "big")
            self.tunnel = Tunnel(config, Random(seed), os.urandom, epoch=time.time_ns())
            self.tunnel.set_listen_port(outer.port)
            self._clock = RealClock.starting_now(1)
            self.driver = TunnelDriver(
                TunnelMachine(interface, self.tunnel, names or {}),
                tun,
                outer,
                turns,
                agenda=NOTHING,
                tell=tell,
                keep_secrets=keep_secrets,
            )
            self._stack = opening.pop_all()

    async def run(self) -> None:
        """Take turns until cancelled, or until the interface is gone."""
        try:
            await self.driver.run(self._clock, lambda _: None)
        except OSError as error:
            if error.errno not in GONE:
                raise

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
