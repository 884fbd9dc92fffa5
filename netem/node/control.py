"""The control channel of a node: JSON lines over a Unix stream socket, several clients at once.

Requests are answered in order, one at a time per client; events are pushed to the clients that
asked for them. Nothing a client does can hurt the node or another client:

* a line that is no request is answered with `"ok": false` and one line of reason;
* a line longer than MAX_REQUEST is refused and skipped up to its end;
* a client that does not read is dropped once MAX_BACKLOG bytes wait for it;
* client number MAX_CLIENTS + 1 is turned away.

Each of these is counted. README.md of this package is the reference for the messages.
"""

import errno
import os
import socket
import stat
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

import msgspec
import trio

from netem.node.requests import (
    MAX_REQUEST,
    Hello,
    Request,
    RequestError,
    parse_id,
    parse_request,
)

# Limit: 32 clients, because a node has a launcher, a judge and a few people who inspect it.
MAX_CLIENTS = 32
# Limit: 4 MiB wait for one client: some 20,000 events, or the reports of 5,000 flows.
MAX_BACKLOG = 4 << 20
MAX_PATH = 107  # bytes of a Unix socket's path, unix(7)
CHUNK = 65_536

Answer = Callable[[Request], Awaitable[Mapping[str, object]]]


def listen(path: Path) -> socket.socket:
    """Return a socket that listens at `path`; raise OSError where that cannot be.

    A socket file that nobody listens on any more is what a killed node leaves in a shared
    folder: it is replaced. One with a listener belongs to a running node and is not.
    """
    if len(os.fsencode(path)) > MAX_PATH:
        raise OSError(
            errno.ENAMETOOLONG, f"a socket's path has at most {MAX_PATH} bytes: {path}"
        )
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        if _is_abandoned(path):
            path.unlink()
        sock.bind(os.fspath(path))
        sock.listen(MAX_CLIENTS)
    except OSError:
        sock.close()
        raise
    return sock


def _is_abandoned(path: Path) -> bool:
    """Return whether `path` is a socket without a listener."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return False
    except FileNotFoundError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        return probe.connect_ex(os.fspath(path)) == errno.ECONNREFUSED


class ControlServer:
    """Serves requests by `answer`: it returns the reply's fields or raises RequestError."""

    def __init__(self, answer: Answer) -> None:
        self.counters: Counter[str] = Counter()
        self._answer = answer
        self._clients: set[_Client] = set()
        self._listeners: set[_Client] = set()  # those that asked for events

    async def serve(self, sock: socket.socket) -> None:
        """Accept and serve clients on the listening `sock` until cancelled; closes it."""
        with trio.socket.from_stdlib_socket(sock) as listener:
            async with trio.open_nursery() as nursery:
                while True:
                    accepted, _ = await listener.accept()
                    if len(self._clients) >= MAX_CLIENTS:
                        self.counters["clients_turned_away"] += 1
                        accepted.close()
                        continue
                    nursery.start_soon(self._serve_one, accepted)

    def push(self, event: Mapping[str, object]) -> None:
        """Send `event` to each client that asked for events. Never blocks."""
        if self._listeners:
            line = msgspec.json.encode({"event": event}) + b"\n"
            for client in tuple(self._listeners):
                self._send(client, line)

    async def drain(self) -> None:
        """Wait until all that was said is handed to the kernel; the caller sets a time-out."""
        for client in tuple(self._clients):
            await client.drained()

    async def _serve_one(self, sock: trio.socket.SocketType) -> None:
        client = _Client(sock)
        self._clients.add(client)
        try:
            with sock, client.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(client.write)
                    await self._read(client)
                    await client.drained()
                    nursery.cancel_scope.cancel()
        finally:
            client.end()
            self._clients.discard(client)
            self._listeners.discard(client)

    async def _read(self, client: "_Client") -> None:
        """Answer requests until the client hangs up."""
        lines = LineSplitter(MAX_REQUEST)
        while chunk := await client.receive():
            for line in lines.feed(chunk):
                if line is None:
                    self.counters["overlong_requests"] += 1
                    self._refuse(client, None, f"a request has at most {MAX_REQUEST} bytes")
                elif line.strip():
                    await self._reply(client, line)

    async def _reply(self, client: "_Client", line: bytes) -> None:
        try:
            request = parse_request(line)
        except RequestError as error:
            self.counters["malformed_requests"] += 1
            self._refuse(client, parse_id(line), str(error))
            return
        try:
            fields = await self._answer(request)
        except RequestError as error:
            self.counters["refused_requests"] += 1
            self._refuse(client, request.id, str(error))
            return
        if isinstance(request, Hello):
            (self._listeners.add if request.events else self._listeners.discard)(client)
        self._send(
            client, msgspec.json.encode({"id": request.id, "ok": True, **fields}) + b"\n"
        )

    def _refuse(self, client: "_Client", request: int | None, why: str) -> None:
        reply = {"id": request, "ok": False, "error": why}
        self._send(client, msgspec.json.encode(reply) + b"\n")

    def _send(self, client: "_Client", line: bytes) -> None:
        if not client.send(line):
            self.counters["slow_clients_dropped"] += 1
            self._listeners.discard(client)


class LineSplitter:
    """Cuts a stream of bytes into lines of at most `limit` bytes, in bounded memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._skipping = False

    def feed(self, chunk: bytes) -> Iterator[bytes | None]:
        """Yield the lines that `chunk` completes, without their end; None for one too long."""
        *ended, tail = chunk.split(b"\n")
        for piece in ended:
            if self._skipping:
                self._skipping = False
            elif len(self._rest) + len(piece) > self._limit:
                yield None
            else:
                yield bytes(self._rest) + piece
            self._rest.clear()
        if self._skipping:
            return
        if len(self._rest) + len(tail) > self._limit:
            self._skipping = True
            self._rest.clear()
            yield None
        else:
            self._rest += tail


class _Client:
    """One connection: what waits to be written to it, and whether it still lives."""

    def __init__(self, sock: trio.socket.SocketType) -> None:
        self.scope = trio.CancelScope()
        self._sock = sock
        self._lines: deque[bytes] = deque()
        self._waiting = 0  # bytes
        self._more = trio.Event()
        self._idle = trio.Event()
        self._idle.set()

    async def receive(self) -> bytes:
        """Return what came, or nothing when the client is gone."""
        try:
            return await self._sock.recv(CHUNK)
        except OSError:
            return b""

    def send(self, line: bytes) -> bool:
        """Queue `line`; False, once, when the client is dropped for not reading."""
        if self.scope.cancel_called:
            return True
        self._waiting += len(line)
        if self._waiting > MAX_BACKLOG:
            self.end()
            return False
        self._lines.append(line)
        self._idle = trio.Event() if self._idle.is_set() else self._idle
        self._more.set()
        return True

    async def write(self) -> None:
        """Write what is queued, until cancelled or the client is gone."""
        while True:
            await self._more.wait()
            self._more = trio.Event()
            batch = b"".join(self._lines)
            self._lines.clear()
            view = memoryview(batch)
            try:
                while view:
                    view = view[await self._sock.send(view) :]
            except OSError:
                self.end()
                return
            self._waiting -= len(batch)
            if not self._lines:
                self._idle.set()

    async def drained(self) -> None:
        await self._idle.wait()

    def end(self) -> None:
        """Give the client up: its tasks end, and nobody waits for it any longer."""
        self.scope.cancel()
        self._idle.set()
