"""Configuration files of `wg`, read and written. wg(8), section CONFIGURATION FILE FORMAT.

    [Interface]
    PrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=
    ListenPort = 51820

    [Peer]
    PublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=
    AllowedIPs = 10.192.122.3/32, 10.192.124.0/24
    Endpoint = 198.51.100.1:51820
    PersistentKeepalive = 25

Names of sections and keys come in any case, `#` begins a comment, and where a key comes twice
the last one counts, but for AllowedIPs, which adds up. The keys that wg-quick(8) has on top are
kept as text, in order, and are not interpreted. Text in, values out: names of hosts stay names,
for whoever may ask a resolver.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from transports.clock import Ns, S
from transports.overlay.allowed_ips import Prefix
from transports.overlay.endpoint import Endpoint
from transports.overlay.keys import PrivateKey, Secret, from_base64, shown, to_base64
from transports.overlay.settings import Settings

Host = tuple[str, int]  # a name or an address, and a port

_INTERFACE = ("PrivateKey", "ListenPort", "FwMark")
_PEER = ("PublicKey", "PresharedKey", "AllowedIPs", "Endpoint", "PersistentKeepalive")
_QUICK = (
    "Address", "DNS", "MTU", "Table", "PreUp", "PostUp", "PreDown", "PostDown", "SaveConfig",
)  # fmt: skip


class ConfigurationError(ValueError):
    """A line that is not right: which, why, what is legal. Keys are never repeated in it."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}")
        self.line = line


@dataclass(slots=True)
class PeerConfiguration:
    """One [Peer]."""

    public_key: bytes = b""
    preshared_key: Secret | None = None
    allowed_ips: list[Prefix] = field(default_factory=list)
    endpoint: Host | None = None
    persistent_keepalive: int = 0  # seconds; 0: off


@dataclass(slots=True)
class Configuration:
    """A whole file."""

    private_key: PrivateKey | None = None
    listen_port: int = 0  # 0: any
    fwmark: int = 0  # 0: none
    peers: list[PeerConfiguration] = field(default_factory=list)
    quick: list[tuple[str, str]] = field(default_factory=list)  # wg-quick's keys and values

    def names(self) -> list[Host]:
        """Return the endpoints that a resolver must be asked about."""
        found = [peer.endpoint for peer in self.peers if peer.endpoint is not None]
        return [host for host in found if literal(host) is None]


def literal(host: Host) -> Endpoint | None:
    """Return the endpoint, or None for a name."""
    name, port = host
    try:
        return Endpoint.parse(f"[{name}]:{port}" if ":" in name else f"{name}:{port}")
    except ValueError:
        return None


def parse(text: str) -> Configuration:
    """Read a file; ConfigurationError says which line is wrong and why."""
    configuration = Configuration()
    section = ""
    peer_line = 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.partition("#")[0].strip()
        if not line:
            continue
        try:
            if line.startswith("["):
                _check_peer(configuration, section)
                section = _section(line)
                if section == "peer":
                    configuration.peers.append(PeerConfiguration())
                    peer_line = number
            elif section == "peer":
                _peer_key(configuration.peers[-1], line)
            elif section == "interface":
                _interface_key(configuration, line)
            else:
                raise ValueError("before the first section: write [Interface] or [Peer]")  # noqa: TRY301
        except ValueError as error:
            missing = isinstance(error, _MissingKeyError)
            raise ConfigurationError(peer_line if missing else number, str(error)) from None
    try:
        _check_peer(configuration, section)
    except _MissingKeyError as error:
        raise ConfigurationError(peer_line, str(error)) from None
    return configuration


def render(configuration: Configuration) -> str:
    """Return the text of a file, in the order of `wg showconf`."""
    lines = ["[Interface]"]
    lines += [f"{key} = {value}" for key, value in configuration.quick]
    if configuration.listen_port:
        lines.append(f"ListenPort = {configuration.listen_port}")
    if configuration.fwmark:
        lines.append(f"FwMark = {configuration.fwmark:#x}")
    if configuration.private_key is not None:
        lines.append(f"PrivateKey = {to_base64(configuration.private_key.reveal())}")
    for peer in configuration.peers:
        lines += ["", "[Peer]", *_peer_lines(peer)]
    return "\n".join(lines) + "\n"


def apply(
    configuration: Configuration,
    settings: Settings,
    now: Ns,
    resolved: Mapping[Host, Endpoint] | None = None,
) -> None:
    """Make a tunnel what the file says, as `wg setconf`: other peers are removed.

    `resolved` has the endpoints of `names()`. One that it lacks is a ValueError, and nothing is
    changed.
    """
    places = _places(configuration, resolved or {})
    settings.set_private_key(configuration.private_key)
    settings.set_listen_port(configuration.listen_port)
    settings.set_fwmark(configuration.fwmark)
    wanted = {peer.public_key for peer in configuration.peers}
    for status in list(settings.peers()):
        if status.public_key in wanted:
            settings.clear_allowed_ips(status.public_key)
        else:
            settings.remove_peer(status.public_key)
    for peer in configuration.peers:
        if settings.add_peer(peer.public_key):  # else it is ourselves
            _apply_peer(peer, settings, places.get(peer.public_key), now)


def _places(
    configuration: Configuration, resolved: Mapping[Host, Endpoint]
) -> dict[bytes, Endpoint]:
    places = {}
    for peer in configuration.peers:
        if peer.endpoint is not None:
            place = literal(peer.endpoint) or resolved.get(peer.endpoint)
            if place is None:
                raise ValueError(f"nobody has resolved the endpoint {_host(peer.endpoint)}")
            places[peer.public_key] = place
    return places


def _apply_peer(
    peer: PeerConfiguration, settings: Settings, place: Endpoint | None, now: Ns
) -> None:
    public = peer.public_key
    if peer.preshared_key is not None:
        settings.set_preshared_key(public, peer.preshared_key)
    if place is not None:
        settings.set_endpoint(public, place)
    for prefix in peer.allowed_ips:
        settings.add_allowed_ip(public, prefix)
    settings.set_persistent_keepalive(public, peer.persistent_keepalive * S, now)


def of(settings: Settings) -> Configuration:
    """Return what a tunnel is set to, as `wg showconf`."""
    peers = [
        PeerConfiguration(
            status.public_key,
            None if status.preshared_key.is_zero else status.preshared_key,
            list(status.allowed_ips),
            _split(str(status.endpoint)) if status.endpoint is not None else None,
            status.persistent_keepalive // S,
        )
        for status in settings.peers()
    ]
    return Configuration(settings.private_key, settings.listen_port, settings.fwmark, peers)


class _MissingKeyError(ValueError):
    """A peer without PublicKey: the fault is where the peer begins."""


def _section(line: str) -> str:
    name = line.lower()
    if name not in {"[interface]", "[peer]"}:
        raise ValueError(f"{shown(line)} is no section: write [Interface] or [Peer]")
    return name[1:-1]


def _check_peer(configuration: Configuration, section: str) -> None:
    if section == "peer" and not configuration.peers[-1].public_key:
        raise _MissingKeyError("this [Peer] has no PublicKey")


def _key_and_value(line: str, legal: tuple[str, ...]) -> tuple[str, str]:
    """Return the key in its usual spelling and what it is set to."""
    name, equals, value = (part.strip() for part in line.partition("="))
    for key in legal:
        if key.lower() == name.lower():
            if not equals or not value:
                raise ValueError(f"{key} has no value")
            return key, value
    raise ValueError(f"{shown(name)} is not known, legal is {', '.join(legal)}")


def _interface_key(configuration: Configuration, line: str) -> None:
    key, value = _key_and_value(line, _INTERFACE + _QUICK)
    try:
        match key:
            case "PrivateKey":
                configuration.private_key = PrivateKey(from_base64(value))
            case "ListenPort":
                configuration.listen_port = number(value, 0xFFFF)
            case "FwMark":
                configuration.fwmark = 0 if value == "off" else number(value, 0xFFFFFFFF)
            case _:
                configuration.quick.append((key, value))
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None


def _peer_key(peer: PeerConfiguration, line: str) -> None:
    key, value = _key_and_value(line, _PEER)
    try:
        match key:
            case "PublicKey":
                peer.public_key = from_base64(value)
            case "PresharedKey":
                peer.preshared_key = Secret(from_base64(value))
            case "AllowedIPs":
                peer.allowed_ips += [Prefix.parse(item.strip()) for item in value.split(",")]
            case "Endpoint":
                peer.endpoint = _split(value)
            case _:
                peer.persistent_keepalive = 0 if value == "off" else number(value, 0xFFFF)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None


def number(text: str, most: int) -> int:
    """Return a number as `wg` writes them, decimal or after 0x, of 0 to `most`."""
    hexadecimal = text.lower().startswith("0x")
    digits = text[2:] if hexadecimal else text
    try:
        if not (digits.isascii() and digits.isalnum()):
            raise ValueError  # noqa: TRY301 - the same words for every mistake
        value = int(digits, 16 if hexadecimal else 10)
    except ValueError:
        value = -1
    if not 0 <= value <= most:
        raise ValueError(f"{shown(text)} is no number of 0 to {most}")
    return value


def _split(text: str) -> Host:
    """Split `host:port`; an IPv6 address is in brackets."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(
            f"{shown(text)}: write an IPv6 address in brackets, [2001:db8::1]:51820"
        )
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{shown(text)} is no endpoint: write a host, a colon and a port")
    return host, int(port)


def _host(host: Host) -> str:
    name, port = host
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def _peer_lines(peer: PeerConfiguration) -> Iterator[str]:
    yield f"PublicKey = {to_base64(peer.public_key)}"
    if peer.preshared_key is not None:
        yield f"PresharedKey = {to_base64(peer.preshared_key.reveal())}"
    if peer.allowed_ips:
        yield f"AllowedIPs = {', '.join(map(str, peer.allowed_ips))}"
    if peer.endpoint is not None:
        yield f"Endpoint = {_host(peer.endpoint)}"
    if peer.persistent_keepalive:
        yield f"PersistentKeepalive = {peer.persistent_keepalive}"
