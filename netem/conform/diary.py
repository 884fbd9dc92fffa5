"""What both ends of a case did, for the logs in its folder."""

from collections.abc import Mapping
from dataclasses import asdict
from ipaddress import ip_address

from netem.conform.endpoint import Application, Joined, Session, Side, Wants
from netem.conform.notation import Value


class Diary:
    """Stands between a case and the endpoint's application, and writes down what passes."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._joined: Joined | None = None

    def open(self, session: Session) -> None:
        """Begin; from now on calls of the session's application are written down."""
        self._joined = session.joined
        session.application = _Recorded(session.application, self._lines)

    def peer(self) -> str:
        """Return the log of the suite's end."""
        if self._joined is None:
            return "not joined\n"
        lines = [_wants(self._joined.wants), f"peer      {_side(self._joined.ours)}"]
        return "\n".join([*lines, f"endpoint  {_side(self._joined.theirs)}", ""])

    def endpoint(self) -> str:
        """Return the log of the endpoint's application."""
        return "".join(f"{line}\n" for line in self._lines)


class _Recorded:
    def __init__(self, application: Application, lines: list[str]) -> None:
        self._application, self._lines = application, lines
        self.untold = application.untold

    def open(self, wants: Mapping[str, Value]) -> Mapping[str, int]:
        return self._application.open(wants)

    def connect(self, peer: Mapping[str, int | str]) -> None:
        self._application.connect(peer)

    def act(self, name: str, fields: Mapping[str, Value]) -> Mapping[str, int]:
        self._lines.append(" ".join(["asked", name, *(f"{k}={v}" for k, v in fields.items())]))
        try:
            return self._application.act(name, fields)
        except Exception as error:
            self._lines.append(f"      {type(error).__name__}: {error}")
            raise

    def told(self) -> list[Mapping[str, Value]]:
        told = self._application.told()
        for each in told:
            self._lines.append(" ".join(["told", *(f"{k}={v}" for k, v in each.items())]))
        return told

    def memory(self, at: int, size: int) -> bytes:
        data = self._application.memory(at, size)
        self._lines.append(f"memory at={at} size={size}: {data[:64].hex()}")
        return data

    def close(self) -> None:
        self._application.close()


def _wants(wants: Wants) -> str:
    return "wants     " + " ".join(f"{k}={v}" for k, v in asdict(wants).items())


def _side(side: Side) -> str:
    where = f"{ip_address(side.ip)} ({side.mac.hex(':')})"
    return f"{where} QP {side.qp_num:#x}, memory {side.va:#x} R_Key {side.key:#x}"
