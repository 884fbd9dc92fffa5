"""The protocol by which `wg` speaks to a node in user space. wireguard.com/xplatform.

A request is `get=1` or `set=1`, lines of `key=value`, and an empty line; an answer ends with
`errno=N` and an empty line. `Requests` cuts what comes out of a socket into requests, `answer`
does what one says and returns what goes back. The socket is its owner's, and so is the port
that the tunnel listens on: `Answer` says whether that changed.

The sign of an error, as `wg` reads it: negative after `set`, positive after `get`. Settings
apply as they are read; a mistake in the middle leaves what came before.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from transports.clock import Ns, S
from transports.overlay.allowed_ips import Prefix
from transports.overlay.configuration import number
from transports.overlay.endpoint import Endpoint
from transports.overlay.keys import PrivateKey, Secret, from_hex, shown
from transports.overlay.peer import PeerStatus
from transports.overlay.settings import Settings

EIO, EINVAL, EPROTO, EADDRINUSE = 5, 22, 71, 98  # Linux's numbers: `wg` prints them as text

# Limit: one request; 65,536 allowed IPs are 4 MiB.
MAX_REQUEST = 8 << 20


class Answer(NamedTuple):
    """What goes back, and what the owner of the socket has to do before."""

    text: str
    listen_port: int | None = None  # a port was set: 0 is any
    fwmark: int | None = None  # a mark was set: 0 is none
    why: str = ""  # what was wrong, for a log; no key is in it

    def __repr__(self) -> str:
        """Hide the text: the answer to get=1 holds all secrets."""
        return (
            f"Answer({len(self.text)} bytes, {self.listen_port}, {self.fwmark}, {self.why!r})"
        )


class Requests:
    """One connection's bytes, cut at empty lines."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Return the requests that are complete now, without their empty lines.

        Raise ValueError for one that is longer than MAX_REQUEST: the connection is of no use.
        A connection without a byte is nothing special: `wg` makes one before each request.
        """
        rest = self._rest
        new = max(0, len(rest) - 1)  # an empty line may have been cut in two
        rest += data
        while (end := rest.find(b"\n\n", new)) >= 0:
            request = bytes(rest[:end])
            del rest[: end + 2]
            new = 0
            yield request
        if len(rest) > MAX_REQUEST:
            raise ValueError(f"a request is at most {MAX_REQUEST} bytes")


def failure(errno: int, *, is_get: bool = False) -> str:
    """Return the answer that says so, for what failed outside: a port in use, for instance."""
    return f"errno={errno if is_get else -errno}\n\n"


def answer(request: bytes, settings: Settings, now: Ns) -> Answer:
    """Do what `request` says, whatever it is."""
    try:
        head, *lines = request.decode("ascii").split("\n")
    except UnicodeDecodeError:
        return Answer(failure(EINVAL), why="a request is ASCII text")
    if head == "get=1":
        if lines:
            return Answer(failure(EINVAL, is_get=True), why="get=1 stands alone")
        return Answer("".join(f"{line}\n" for line in _shown(settings)) + "errno=0\n\n")
    if head != "set=1":
        return Answer(failure(EPROTO), why="a request begins with get=1 or set=1")
    setting = _Setting(settings, now)
    try:
        for line in lines:
            setting.line(line)
        setting.end_peer()
    except ValueError as error:
        why = f"{setting.key}: {error}"
        return Answer(failure(EINVAL), setting.listen_port, setting.fwmark, why)
    return Answer("errno=0\n\n", setting.listen_port, setting.fwmark)


def _shown(settings: Settings) -> Iterator[str]:
    if settings.private_key is not None:
        yield f"private_key={settings.private_key.reveal().hex()}"
    yield f"listen_port={settings.listen_port}"
    if settings.fwmark:
        yield f"fwmark={settings.fwmark}"
    for status in settings.peers():
        yield from _shown_peer(status)


def _shown_peer(status: PeerStatus) -> Iterator[str]:
    yield f"public_key={status.public_key.hex()}"
    yield f"preshared_key={status.preshared_key.reveal().hex()}"
    yield "protocol_version=1"
    if status.endpoint is not None:
        yield f"endpoint={status.endpoint}"
    seconds, rest = divmod(status.last_handshake or 0, S)
    yield f"last_handshake_time_sec={seconds}"
    yield f"last_handshake_time_nsec={rest}"
    yield f"tx_bytes={status.tx_bytes}"
    yield f"rx_bytes={status.rx_bytes}"
    yield f"persistent_keepalive_interval={status.persistent_keepalive // S}"
    for prefix in status.allowed_ips:
        yield f"allowed_ip={prefix}"


class _Setting:
    """One `set`, line by line. A peer is made when it is clear that it is to be made."""

    def __init__(self, settings: Settings, now: Ns) -> None:
        self.listen_port: int | None = None
        self.fwmark: int | None = None
        self.key = "set"  # that was read last
        self._settings = settings
        self._now = now
        self._peer: bytes | None = None  # whose keys come now
        self._is_new = False  # named, and neither there nor made yet
        self._is_ignored = False  # removed, not to be made, or ourselves

    def line(self, line: str) -> None:
        """Take one line; ValueError says what is wrong with its value."""
        key, equals, value = line.partition("=")
        if not equals:  # it may be anything, and is not repeated
            raise ValueError("a line is key=value")
        self.key = key
        if key == "public_key":
            self.end_peer()
            self._begin_peer(from_hex(value))
        elif self._peer is None:
            self._device(key, value)
        else:
            self._peer_key(key, value, self._peer)

    def end_peer(self) -> None:
        """Make the peer if nothing but its name was said."""
        if self._peer is not None and self._is_new:
            self._is_ignored = not self._settings.add_peer(self._peer)
            self._is_new = False

    def _begin_peer(self, public: bytes) -> None:
        self._peer = public
        self._is_new = public not in self._settings
        self._is_ignored = False

    def _device(self, key: str, value: str) -> None:
        match key:
            case "private_key":
                secret = Secret(from_hex(value))
                private = None if secret.is_zero else PrivateKey(secret.reveal())
                self._settings.set_private_key(private)
            case "listen_port":
                self.listen_port = _decimal(value, 0xFFFF)
                self._settings.set_listen_port(self.listen_port)
            case "fwmark":
                self.fwmark = _decimal(value, 0xFFFFFFFF)
                self._settings.set_fwmark(self.fwmark)
            case "replace_peers":
                _check_true(value)
                for status in list(self._settings.peers()):
                    self._settings.remove_peer(status.public_key)
            case _:
                raise ValueError("not known before the first public_key")

    def _peer_key(self, key: str, value: str, public: bytes) -> None:
        if key == "update_only":
            _check_true(value)
            self._is_ignored |= self._is_new
            self._is_new = False
            return
        if key == "remove":
            _check_true(value)
            self._settings.remove_peer(public)
            self._is_ignored, self._is_new = True, False
            return
        self.end_peer()
        change = _change(key, value)
        if not self._is_ignored:
            change(self._settings, public, self._now)


_Change = Callable[[Settings, bytes, Ns], object]


def _change(key: str, value: str) -> _Change:
    """Return what one key of a peer changes; ValueError before anything is changed."""
    match key:
        case "preshared_key":
            secret = Secret(from_hex(value))
            return lambda settings, public, _: settings.set_preshared_key(public, secret)
        case "endpoint":
            endpoint = Endpoint.parse(value)
            return lambda settings, public, _: settings.set_endpoint(public, endpoint)
        case "persistent_keepalive_interval":
            every = _decimal(value, 0xFFFF) * S
            return lambda settings, public, now: settings.set_persistent_keepalive(
                public, every, now
            )
        case "replace_allowed_ips":
            _check_true(value)
            return lambda settings, public, _: settings.clear_allowed_ips(public)
        case "allowed_ip":
            prefix = Prefix.parse(value.removeprefix("-"))
            taken = value.startswith("-")
            change = Settings.remove_allowed_ip if taken else Settings.add_allowed_ip
            return lambda settings, public, _: change(settings, public, prefix)
        case "protocol_version" if value == "1":
            return lambda *_: None
    raise ValueError("not known for a peer, or not with this value")


def _check_true(value: str) -> None:
    if value != "true":
        raise ValueError("the only value is true; leave the line out instead")


def _decimal(value: str, most: int) -> int:
    if not (value.isascii() and value.isdecimal()):
        raise ValueError(f"{shown(value)} is no decimal number")
    return number(value, most)
