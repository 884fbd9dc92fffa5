"""Connections by the numbers that messages name them with, and the bound on how many."""

from collections.abc import Iterator

from transports.roce.cm.connection import Connection
from transports.roce.cm.refusals import CmRefusal, RefusedError


class TableFullError(ValueError):
    """More connections are open, or in TIMEWAIT, than the manager was made for."""


class Connections:
    """All connections of one manager, those in TIMEWAIT included."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_local: dict[int, Connection] = {}
        # By the adapter of the peer and its communication ID: those that the peer asked for.
        self._by_remote: dict[tuple[int, int], Connection] = {}
        # By the adapter of the peer and its queue pair, which can be in one connection only.
        self._by_qpn: dict[tuple[int, int], Connection] = {}

    def __len__(self) -> int:
        return len(self._by_local)

    def __iter__(self) -> Iterator[Connection]:
        return iter([*self._by_local.values()])

    def __contains__(self, local_comm_id: int) -> bool:
        return local_comm_id in self._by_local

    @property
    def is_full(self) -> bool:
        return len(self._by_local) >= self._limit

    def add(self, connection: Connection) -> None:
        """Raise TableFullError if there is no room."""
        if self.is_full:
            raise TableFullError(
                f"{self._limit} connections are open or in TIMEWAIT: disconnect some and wait, "
                "or raise max_connections"
            )
        self._by_local[connection.local_comm_id] = connection
        if not connection.is_active:
            self._by_remote[self._remote_key(connection)] = connection

    def add_qpn(self, connection: Connection) -> None:
        """Enter the peer's queue pair, which `with_qpn` did not find."""
        self._by_qpn[connection.remote_ca_guid, connection.remote_qpn] = connection

    def remove(self, connection: Connection) -> None:
        del self._by_local[connection.local_comm_id]
        if not connection.is_active:
            del self._by_remote[self._remote_key(connection)]
        qpn = connection.remote_ca_guid, connection.remote_qpn
        if self._by_qpn.get(qpn) is connection:
            del self._by_qpn[qpn]

    def of_request(self, ca_guid: int, comm_id: int) -> Connection | None:
        """Return the connection that a REQ with these numbers asked for."""
        return self._by_remote.get((ca_guid, comm_id))

    def with_qpn(self, ca_guid: int, qpn: int) -> Connection | None:
        """Return the connection that the peer's queue pair is in."""
        return self._by_qpn.get((ca_guid, qpn))

    def local(self, comm_id: int, peer: bytes) -> Connection:
        """Return the connection with our communication ID. Raise RefusedError if none."""
        connection = self._by_local.get(comm_id)
        if connection is None:
            raise RefusedError(CmRefusal.UNKNOWN_ID)
        if connection.remote_ip != peer:
            raise RefusedError(CmRefusal.PEER)
        return connection

    def pair(self, ours: int, theirs: int, peer: bytes) -> Connection:
        """Return the connection with these communication IDs. Raise RefusedError if none."""
        connection = self.local(ours, peer)
        if connection.remote_comm_id != theirs:
            raise RefusedError(CmRefusal.UNKNOWN_ID)
        return connection

    @staticmethod
    def _remote_key(connection: Connection) -> tuple[int, int]:
        return connection.remote_ca_guid, connection.remote_comm_id
