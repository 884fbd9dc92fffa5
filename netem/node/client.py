"""The other end of a node's control channel: what the launcher, `inspect` and `impair` use.

    async with connect(path, "h0") as h0:
        await h0.call("hello", events=True)
        await h0.call("start", at=monotonic_ns() + 20_000_000)
        async for event in h0.events():
            ...

Whoever asks for events must read them: beyond MAX_EVENTS this side stops reading the socket,
and the node drops a client that does not read. Time-outs are wall time, in seconds.
"""

import errno
import math
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import trio

from netem.node.control import CHUNK, LineSplitter
from netem.node.requests import one_line

MAX_EVENTS = 1 << 16  # pushed events that wait for their reader
MAX_REPLY = 16 << 20  # bytes of one line; a node sends at most MAX_BACKLOG
CALL_TIMEOUT_S = 10.0
RETRY_S = 0.002  # between two attempts to reach a node that is not there yet

Fields = dict[str, Any]  # decoded JSON, whose shape README.md tells


class ControlError(Exception):
    """A call that did not succeed; the message names the node and the call."""


class RefusedError(ControlError):
    """The node answered, and its answer was no."""


class NodeGoneError(ControlError):
    """The connection ended: the node was stopped, killed, or dropped us for not reading."""


class NodeTimeoutError(ControlError):
    """No answer in time."""


class NodeClient:
    """One connection to one node. Any number of tasks may call at the same time."""

    def __init__(self, node: str, sock: trio.socket.SocketType) -> None:
        self.node = node
        self._sock = sock
        self._numbers = count(1)
        self._writing = trio.Lock()
        self._waiting: dict[int, _Reply] = {}
        self._gone = False
        self._events_in, self._events_out = trio.open_memory_channel[Fields](MAX_EVENTS)

    async def call(
        self, do: str, /, *, timeout_s: float = CALL_TIMEOUT_S, **fields: object
    ) -> Fields:
        """Send one request and return the fields of its reply.

        Raise RefusedError, NodeTimeoutError or NodeGoneError, each naming node and call.
        """
        number = next(self._numbers)
        reply = self._waiting[number] = _Reply()
        line = msgspec.json.encode({"id": number, "do": do, **fields}) + b"\n"
        try:
            with trio.move_on_after(timeout_s) as scope:
                await self._write(line, do)
                if not self._gone:
                    await reply.there.wait()
        finally:
            del self._waiting[number]
        if scope.cancelled_caught:
            raise NodeTimeoutError(f"{self.node}: no answer to {do} within {timeout_s:g} s")
        if reply.fields is None:
            raise NodeGoneError(f"{self.node}: connection ended during {do}")
        if not reply.fields.pop("ok", False):
            raise RefusedError(
                f"{self.node}: {do}: {reply.fields.get('error', 'no reason given')}"
            )
        return reply.fields

    def events(self) -> trio.MemoryReceiveChannel[Fields]:
        """Return the pushed events, in order: an `async for` over them ends with the node."""
        return self._events_out

    async def _write(self, line: bytes, do: str) -> None:
        async with self._writing:
            view = memoryview(line)
            try:
                while view and not self._gone:
                    view = view[await self._sock.send(view) :]
            except OSError:
                raise NodeGoneError(f"{self.node}: connection ended during {do}") from None
            finally:
                # Half a line would spoil the next one: after a time-out in its middle, no more.
                self._gone = self._gone or 0 < len(view) < len(line)

    async def read(self) -> None:
        """Hand replies and events to those who wait for them, until the node hangs up."""
        lines = LineSplitter(MAX_REPLY)
        try:
            while chunk := await self._receive():
                for line in lines.feed(chunk):
                    await self._take(line)
        finally:
            self._gone = True
            for reply in self._waiting.values():
                reply.there.set()
            self._events_in.close()

    async def _receive(self) -> bytes:
        try:
            return await self._sock.recv(CHUNK)
        except OSError:
            return b""

    async def _take(self, line: bytes | None) -> None:
        if line is None:
            raise ControlError(f"{self.node}: a reply of more than {MAX_REPLY} bytes")
        try:
            message = msgspec.json.decode(line, type=Fields)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ControlError(f"{self.node}: not a reply: {one_line(str(error))}") from None
        if "event" in message:
            await self._events_in.send(message["event"])
        elif (reply := self._waiting.get(message.pop("id", 0) or 0)) is not None:
            reply.fields = message
            reply.there.set()


class _Reply:
    """The place where a call waits for its answer."""

    def __init__(self) -> None:
        self.there = trio.Event()
        self.fields: Fields | None = None


@asynccontextmanager
async def connect(
    path: str | os.PathLike[str], node: str | None = None, *, wait_s: float = 0.0
) -> AsyncIterator[NodeClient]:
    """Connect to the node that listens at `path`; raise NodeGoneError where nobody does.

    `wait_s` allows for a node that is just being started. `node` is what messages call it, by
    default the file's name.
    """
    name = node or Path(path).stem
    with await _reach(path, name, wait_s) as sock:
        client = NodeClient(name, sock)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.read)
                yield client
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            # That there is a second task is our affair: the caller sees its own exception.
            if len(group.exceptions) == 1:
                raise group.exceptions[0] from group.exceptions[0].__cause__
            raise


async def _reach(
    path: str | os.PathLike[str], name: str, wait_s: float
) -> trio.socket.SocketType:
    give_up = trio.current_time() + wait_s if wait_s else -math.inf
    while True:
        sock = trio.socket.socket(trio.socket.AF_UNIX)
        try:
            await sock.connect(os.fspath(path))
        except OSError as error:
            sock.close()
            awaited = error.errno in {errno.ENOENT, errno.ECONNREFUSED, errno.EAGAIN}
            if not awaited or trio.current_time() >= give_up:
                reason = error.strerror or str(error)
                raise NodeGoneError(f"{name}: no node at {os.fspath(path)}: {reason}") from None
            await trio.sleep(RETRY_S)
        except BaseException:
            sock.close()
            raise
        else:
            return sock
