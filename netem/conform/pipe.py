"""An application in another process: its calls as lines of JSON over a stream socket."""

import json
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from netem.conform.endpoint import (
    Application,
    RefusedError,
    StageError,
    UnsupportedError,
)
from netem.conform.notation import Relative, Value

LIMIT_S = 20.0  # of one call
_CHUNK = 1 << 16


class DistantApplication(ABC):
    """The suite's side of an application that is elsewhere: an Application made of calls."""

    untold: frozenset[str] = frozenset()

    def open(self, wants: Mapping[str, Value]) -> Mapping[str, int]:
        found: Mapping[str, int] = self._call("open", wants=plain(wants))
        return found

    def connect(self, peer: Mapping[str, int | str]) -> None:
        self._call("connect", peer=dict(peer))

    def act(self, name: str, fields: Mapping[str, Value]) -> Mapping[str, int]:
        found: Mapping[str, int] = self._call("act", name=name, fields=plain(fields))
        return found

    def told(self) -> list[Mapping[str, Value]]:
        found: list[Mapping[str, Value]] = self._call("told")
        return found

    def memory(self, at: int, size: int) -> bytes:
        return bytes.fromhex(self._call("memory", at=at, size=size))

    def close(self) -> None:
        self._call("close")

    @abstractmethod
    def _call(self, what: str, **arguments: Any) -> Any:  # noqa: ANN401 - JSON
        """Return what the method of that name returns there; raise what it raises."""


class PipedApplication(DistantApplication):
    """One at the other end of a socket."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._rest = b""
        channel.settimeout(LIMIT_S)

    def _call(self, what: str, **arguments: Any) -> Any:  # noqa: ANN401 - JSON
        line = json.dumps({"do": what, "with": arguments}).encode() + b"\n"
        try:
            self._channel.sendall(line)
            while b"\n" not in self._rest:
                chunk = self._channel.recv(_CHUNK)
                if not chunk:
                    raise StageError("the endpoint's application", "its process has ended")
                self._rest += chunk
        except OSError as error:
            raise StageError("the endpoint's application", f"{what}: {error}") from error
        answer, _, self._rest = self._rest.partition(b"\n")
        return unwrapped(json.loads(answer))


def unwrapped(answer: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    """Return the value of an answer, or raise what it says."""
    if "refused" in answer:
        raise RefusedError(answer["refused"])
    if "unsupported" in answer:
        raise UnsupportedError(answer["unsupported"])
    return answer["value"]


def answered(application: Application, line: bytes) -> bytes:
    """Do what a line asks an application for, and return the line that answers."""
    asked = json.loads(line)
    try:
        value = getattr(application, asked["do"])(**asked["with"])
    except RefusedError as error:
        answer = {"refused": str(error)}
    except UnsupportedError as error:
        answer = {"unsupported": str(error)}
    else:
        answer = {"value": value.hex() if isinstance(value, bytes) else value}
    return json.dumps(answer).encode() + b"\n"


def plain(values: Mapping[str, Value]) -> dict[str, int | str]:
    """Return values as JSON can carry them: a relative one is its number."""
    return {
        name: value.by if isinstance(value, Relative) else value
        for name, value in values.items()
    }
