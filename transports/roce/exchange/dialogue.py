"""A dialogue over a byte stream, or over messages: bytes in, writes out, and no I/O.

What is to be said and heard is a generator, which reads like the dialogue itself: it yields
`Want` for bytes of the peer, and `HOLD` where the owner has something to do first. Whoever owns
a dialogue, after any call, sends each of `writes` by one call, drains `events`, and calls
`proceed` once it has done what an event asks for. Nothing raises for what a peer sends: what
cannot be ends the dialogue, and `failure` says what it was.
"""

from collections import deque
from collections.abc import Generator, Iterator
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from wire.codec import DecodeError, ReadBuffer

Event = TypeVar("Event")

# Limit: 64 KiB wait to be looked at; the longest that a tool writes at once is 13 KiB.
MAX_WAITING = 1 << 16


class Want(NamedTuple):
    """So many bytes of the peer, and what they are called when they do not come."""

    size: int
    what: str
    is_optional: bool = False  # the peer may close instead: the script goes on with nothing


class Hold:
    """The owner has something to do."""


HOLD = Hold()
_Result = TypeVar("_Result")
Step: TypeAlias = Generator[Want | Hold, bytes, _Result]
Script: TypeAlias = Step[None]


class Dialogue(Generic[Event]):
    """One side of one dialogue. Children say what happens in `_script`."""

    def __init__(self) -> None:
        self.failure: str | None = None
        self.is_done = False
        self._writes: deque[bytes] = deque()
        self._events: deque[Event] = deque()
        self._heard = bytearray()
        self._running = self._script()
        self._waits_for: Want | Hold | None = None
        self._advance(b"")

    def _script(self) -> Script:
        raise NotImplementedError

    # -- the owner's side -------------------------------------------------------------------

    def feed(self, data: ReadBuffer) -> None:
        """Take bytes of the peer, in any portions. Keeps no view of them."""
        view = memoryview(data)
        while view and not self.is_over:
            room = MAX_WAITING - len(self._heard)
            if not room:
                came = len(self._heard) + len(view)
                self._fail(f"{came} bytes came while {self._where()}")
                return
            self._heard += view[:room]
            view = view[room:]
            self._continue()

    def closed(self) -> None:
        """Take note that the peer will say nothing more."""
        if self.is_over:
            return
        if isinstance(self._waits_for, Want) and self._waits_for.is_optional:
            self._heard.clear()
            self._advance(b"")
        else:
            self._fail(f"the peer closed the connection while {self._where()}")

    def proceed(self) -> None:
        """Go on: what the last event asked for is done. Raise ValueError if nothing waits."""
        if not self.is_held:
            raise ValueError(f"proceed while {self._where()}")
        self._advance(b"")
        self._continue()

    @property
    def is_held(self) -> bool:
        """Say whether `proceed` is awaited."""
        return self._waits_for is HOLD

    @property
    def is_over(self) -> bool:
        return self.is_done or self.failure is not None

    def writes(self) -> Iterator[bytes]:
        """Hand out what is to be sent, each by one call: tools read each by one call."""
        while self._writes:
            yield self._writes.popleft()

    def events(self) -> Iterator[Event]:
        """Hand out, once and in order, what the owner should know."""
        while self._events:
            yield self._events.popleft()

    # -- the script's side ------------------------------------------------------------------

    def _say(self, data: bytes) -> None:
        self._writes.append(data)

    def _tell(self, event: Event) -> None:
        self._events.append(event)

    # -- common -----------------------------------------------------------------------------

    def _continue(self) -> None:
        while isinstance(want := self._waits_for, Want) and len(self._heard) >= want.size:
            data = bytes(self._heard[: want.size])
            del self._heard[: want.size]
            self._advance(data)

    def _advance(self, data: bytes) -> None:
        try:
            self._waits_for = self._running.send(data) if data else next(self._running)
        except StopIteration:
            self._waits_for = None
            self.is_done = True
        except DecodeError as wrong:
            self._fail(str(wrong))

    def _fail(self, why: str) -> None:
        self.failure = why
        self._waits_for = None
        self._heard.clear()
        self._running.close()

    def _where(self) -> str:
        match self._waits_for:
            case Want(size, what):
                return f"{what} was awaited: {len(self._heard)} of {size} bytes"
            case Hold():
                return "our own side was not ready"
            case _:
                return "nothing was awaited"
