"""The Unix socket at which `wg` finds an interface in user space. wireguard.com/xplatform.

    wg show, set, syncconf ... -- /var/run/wireguard/NAME.sock -- UapiServer -- Settings
                                                                      |
                                                                      +-- `settle`, the owner's

What a request says is the business of `transports.overlay.uapi`; here is the socket. `wg` makes
a connection before each request and closes it without a byte, only to see who listens; others
ask again and again on one. Only its user may connect, and has bounds all the same:

* a request longer than MAX_REQUEST is answered by EINVAL and its connection closed;
* half a request waits for its other half, an answer for its reader; neither holds up others;
* client number MAX_CLIENTS + 1 is served, and who has been silent the longest is hung up on.

The folder is the mount namespace's and not the network namespace's: nodes that share one need
different names for their interfaces.
"""

import contextlib
import os
import re
from collections import Counter, OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from socket import socket

import trio

from netem.node import control
from netem.overlay.driver import TunnelDriver
from transports.clock import Ns
from transports.overlay.settings import Settings
from transports.overlay.uapi import EINVAL, EIO, Answer, Requests, answer, failure

FOLDER = Path("/var/run/wireguard")  # of `wg`, fixed when it is built
MAX_CLIENTS = 16
CHUNK = 65_536

_NAME = re.compile(r"[A-Za-z0-9_=+.-]{1,15}")  # what `wg` takes for an interface, IFNAMSIZ - 1

# Does what a setting asks of the owner: binds the port, marks the socket, sends what is due.
# Returns 0, or the number of an error that `wg` shall print.
Settle = Callable[[Answer], int]


def listen(name: str, folder: Path = FOLDER) -> socket:
    """Return a socket that listens where `wg` looks for the interface `name`.

    Only its user may connect. Raises ValueError for what is no name of an interface, and
    OSError where another node of that name is alive.
    """
    if not _NAME.fullmatch(name) or name in {".", ".."}:
        raise ValueError(
            f"{name!r} is no name of an interface: 1 to 15 letters, digits and _=+.-"
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{name}.sock"
    sock = control.listen(path)
    path.chmod(0o600)
    return sock


class UapiServer:
    """Serves one interface. Settings apply as they are read, between two turns of the loop."""

    def __init__(self, settings: Settings, now: Callable[[], Ns], settle: Settle) -> None:
        """`settle` is called after each `set`, a failed one too: what came before it stays."""
        self.counters: Counter[str] = Counter()
        self._settings = settings
        self._now = now
        self._settle = settle
        self._clients: OrderedDict[trio.CancelScope, None] = OrderedDict()  # by last word

    async def serve(self, sock: socket) -> None:
        """Serve the listening `sock` until cancelled; then it is closed and its file gone."""
        path: str = sock.getsockname()
        try:
            with trio.socket.from_stdlib_socket(sock) as listener:
                async with trio.open_nursery() as nursery:
                    while True:
                        client, _ = await listener.accept()
                        self._make_room()
                        nursery.start_soon(self._serve_one, client)
        finally:
            with contextlib.suppress(FileNotFoundError):  # `wg` may have found it dead
                os.unlink(path)  # noqa: PTH108 - ASYNC240 wants a thread for a path

    def _make_room(self) -> None:
        """Hang up on who has been silent the longest, if all places are taken."""
        if len(self._clients) >= MAX_CLIENTS:
            silent, _ = self._clients.popitem(last=False)
            silent.cancel()
            self.counters["clients_dropped"] += 1

    async def _serve_one(self, client: trio.socket.SocketType) -> None:
        with client, trio.CancelScope() as scope:
            self._clients[scope] = None
            try:
                await self._answer_all(client, scope)
            except OSError:  # it is gone
                self.counters["clients_gone"] += 1
            finally:
                self._clients.pop(scope, None)

    async def _answer_all(
        self, client: trio.socket.SocketType, scope: trio.CancelScope
    ) -> None:
        requests = Requests()
        while (data := await client.recv(CHUNK)) and not scope.cancel_called:
            self._clients.move_to_end(scope)
            try:
                for request in requests.feed(data):
                    await _send(client, self._answer(request))
            except ValueError:  # too long: where the next one begins, nobody knows
                self.counters["overlong_requests"] += 1
                await _send(client, failure(EINVAL))
                return

    def _answer(self, request: bytes) -> str:
        told = answer(request, self._settings, self._now())
        self.counters["requests"] += 1
        if told.why:
            self.counters["refused_requests"] += 1
        if request.startswith(b"get=1"):
            return told.text
        trouble = self._settle(told)
        if trouble and not told.why:
            self.counters["refused_requests"] += 1
            return failure(trouble)
        return told.text


def server_of(driver: TunnelDriver) -> UapiServer:
    """Return what serves a tunnel that has sockets."""
    return UapiServer(driver.tunnel, driver.now, partial(_settle, driver))


def _settle(driver: TunnelDriver, told: Answer) -> int:
    """Bind and mark the sockets as is wanted, and let what is due be sent."""
    try:
        if told.listen_port is not None:
            driver.rebind(told.listen_port)
        if told.fwmark is not None:
            driver.set_mark(told.fwmark)
    except OSError as error:
        driver.tunnel.set_listen_port(driver.port)  # shown is what is so
        driver.tunnel.set_fwmark(driver.mark)
        return error.errno or EIO
    finally:
        driver.nudge()
    return 0


async def _send(client: trio.socket.SocketType, text: str) -> None:
    view = memoryview(text.encode())
    while view:
        view = view[await client.send(view) :]
