"""The words of WireGuard: a peer with keys of its own, which says and reads the four messages.

    INIT         ts=+N (seconds after the case's begin; default: later than the one before)
                 mac1=bad static=stranger reserved=1 longer=N
                 mac2=cookie (of the COOKIE that came last) mac2=bad; default: zeros
    RESPONSE     answers the INIT that came last
    COOKIE       answers the INIT or the RESPONSE that came last
    DATA         size counter src=stranger flip=1 index=bad extra=N (zeros behind the packet)
    KEEPALIVE    counter
    AGAIN        the datagram before once more; `port` for all: another UDP source port

What comes is opened with the keys of the session that it belongs to. Its fields: `size` of the
datagram, `counter`, `length` of the inner packet, `padded` (plain text beyond it, all zeros),
`session` (0: the first one of the case), `to` the UDP port that it goes to, `mac2` of a message
of the handshake: `none`, `right` by the COOKIE that was sent last, `wrong`.

The handshake is written from the paper (sections 5.4.2 to 5.4.7), over `wg_noise` and
`wg_cookie`: nothing here is the product's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from netem.conform import wg_cookie
from netem.conform.notation import Relative, Value, Words
from netem.conform.wg_noise import dh, hash_, kdf, mac, open_, public, seal
from wire.codec import DecodeError

PEER_KEY, NODE_KEY, STRANGER = bytes([1]) * 32, bytes([2]) * 32, bytes([9]) * 32
PEER_PORT, NODE_PORT = 51821, 51820
_BEGIN = 1_767_225_600  # of timestamps: the first day of 2026
_CONSTRUCTION = b"Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s"
_IDENTIFIER = b"WireGuard v1 zx2c4 Jason@zx2c4.com"
_NAMES = {1: "INIT", 2: "RESPONSE", 3: "COOKIE", 4: "DATA"}
_SIZES = {"INIT": 148, "RESPONSE": 92, "COOKIE": 64}


@dataclass(frozen=True, slots=True)
class WgHeard:
    """One datagram of the endpoint, opened."""

    at: int
    name: str
    fields: Mapping[str, int | str]


@dataclass(slots=True)
class _Keys:
    """One session: what we send and receive with, and both indices."""

    send: bytes
    receive: bytes
    ours: int
    theirs: int
    counter: int = 0


@dataclass(slots=True)
class WgPeer:
    """The suite's end of a tunnel."""

    sessions: list[_Keys] = field(default_factory=list)
    last: bytes = b""
    _index: int = 0x5000
    _stamp: int = 0
    _waiting: tuple[bytes, bytes, bytes, int] | None = None  # ck, h, ephemeral, index
    _heard: tuple[bytes, bytes, bytes, int] | None = None  # of an INIT: ck, h, ephemeral, index
    _said_mac1: bytes = b""  # of our last INIT: a COOKIE is bound to it
    _heard_macs: tuple[int, bytes] | None = None  # of their handshake: index, mac1
    _given: bytes = b""  # the cookie that we have sent
    _got: bytes = b""  # the cookie that has come

    # -- saying ----------------------------------------------------------------------------

    def say(self, words: Words) -> tuple[bytes, int]:
        """Return a datagram and its source port. ValueError for what it cannot have."""
        given = dict(words.fields)
        port = _int(given, "port", PEER_PORT)
        match words.name:
            case "INIT":
                self.last = self._init(given)
            case "RESPONSE":
                self.last = self._response()
            case "COOKIE":
                self.last = self._cookie()
            case "DATA" | "KEEPALIVE":
                self.last = self._data(words.name == "DATA", given)
            case "AGAIN":
                pass
            case _:
                raise ValueError("is no message of WireGuard")
        if given:
            raise ValueError(f"no field {', '.join(given)}")
        return self.last, port

    def _init(self, given: dict[str, Value]) -> bytes:
        static = STRANGER if given.pop("static", "") == "stranger" else PEER_KEY
        theirs = public(NODE_KEY)
        self._index += 1
        stamp = given.pop("ts", None)
        self._stamp = stamp.by if isinstance(stamp, Relative) else self._stamp + 1
        ephemeral = hash_(b"ephemeral", self._index.to_bytes(4))
        ck = hash_(_CONSTRUCTION)
        h = hash_(hash_(ck, _IDENTIFIER), theirs)
        h = hash_(h, public(ephemeral))
        [ck] = kdf(ck, public(ephemeral), 1)
        ck, key = kdf(ck, dh(ephemeral, theirs), 2)
        sealed_static = seal(key, 0, public(static), h)
        h = hash_(h, sealed_static)
        ck, key = kdf(ck, dh(static, theirs), 2)
        tai = (0x400000000000000A + _BEGIN + self._stamp).to_bytes(8) + bytes(4)
        sealed_stamp = seal(key, 0, tai, h)
        h = hash_(h, sealed_stamp)
        self._waiting = ck, h, ephemeral, self._index
        reserved = bytes((_int(given, "reserved", 0), 0, 0))
        message = b"\1" + reserved + self._index.to_bytes(4, "little") + public(ephemeral)
        message += sealed_static + sealed_stamp
        mac1 = mac(hash_(b"mac1----", theirs), message)
        if given.pop("mac1", "") == "bad":
            mac1 = bytes((mac1[0] ^ 1,)) + mac1[1:]
        self._said_mac1 = mac1
        mac2 = self._mac2(message + mac1, str(given.pop("mac2", "")))
        return message + mac1 + mac2 + bytes(_int(given, "longer", 0))

    def _mac2(self, message: bytes, which: str) -> bytes:
        if not which:
            return bytes(16)
        if which == "cookie" and not self._got:
            raise ValueError("mac2=cookie wants a COOKIE, and none has come")
        return mac(self._got if which == "cookie" else b"no cookie", message)

    def _cookie(self) -> bytes:
        if self._heard_macs is None:
            raise ValueError("answers an INIT or a RESPONSE, and none has come")
        index, mac1 = self._heard_macs
        self._index += 1
        self._given = hash_(b"cookie", self._index.to_bytes(4))[:16]
        nonce = hash_(b"nonce", self._index.to_bytes(4))[:24]
        sealed = wg_cookie.seal(public(PEER_KEY), nonce, self._given, mac1)
        return b"\3\0\0\0" + index.to_bytes(4, "little") + nonce + sealed

    def _response(self) -> bytes:
        if self._heard is None:
            raise ValueError("answers an INIT, and none has come")
        ck, h, their_ephemeral, their_index = self._heard
        self._index += 1
        ephemeral = hash_(b"ephemeral", self._index.to_bytes(4))
        h = hash_(h, public(ephemeral))
        [ck] = kdf(ck, public(ephemeral), 1)
        [ck] = kdf(ck, dh(ephemeral, their_ephemeral), 1)
        [ck] = kdf(ck, dh(ephemeral, public(NODE_KEY)), 1)
        ck, tau, key = kdf(ck, bytes(32), 3)
        h = hash_(h, tau)
        empty = seal(key, 0, b"", h)
        receive, send = kdf(ck, b"", 2)
        self.sessions.append(_Keys(send, receive, self._index, their_index))
        indices = self._index.to_bytes(4, "little") + their_index.to_bytes(4, "little")
        message = b"\2\0\0\0" + indices + public(ephemeral) + empty
        return message + mac(hash_(b"mac1----", public(NODE_KEY)), message) + bytes(16)

    def _data(self, has_packet: bool, given: dict[str, Value]) -> bytes:
        if not self.sessions:
            raise ValueError("wants a session, and there is none")
        keys = self.sessions[_int(given, "session", len(self.sessions) - 1)]
        counter = _int(given, "counter", keys.counter)
        keys.counter = max(keys.counter, counter + 1)
        text = b""
        if has_packet:
            source = 9 if given.pop("src", "") == "stranger" else 1
            text = inner_packet(source, 2, _int(given, "size", 60))
            text += bytes(-len(text) % 16 + _int(given, "extra", 0))
        index = keys.theirs ^ (0xFFFF if given.pop("index", "") == "bad" else 0)
        sealed = bytearray(seal(keys.send, counter, text))
        if _int(given, "flip", 0):
            sealed[-1] ^= 1
        head = b"\4\0\0\0" + index.to_bytes(4, "little") + counter.to_bytes(8, "little")
        return head + bytes(sealed)

    # -- hearing ---------------------------------------------------------------------------

    def hear(self, at: int, datagram: bytes, to: int) -> WgHeard:
        """Open a datagram of the endpoint. DecodeError for one that is not what it must be."""
        name = _NAMES.get(datagram[0], f"TYPE_{datagram[0]}")
        if datagram[1:4] != bytes(3):
            raise DecodeError("reserved bytes that are not zero")
        if name in _SIZES and len(datagram) != _SIZES[name]:
            raise DecodeError(f"{name} of {len(datagram)} bytes")
        fields: dict[str, int | str] = {"size": len(datagram), "to": to}
        if name == "INIT":
            fields |= self._hear_init(datagram)
        elif name == "RESPONSE":
            self._hear_response(datagram)
        elif name == "COOKIE":
            self._hear_cookie(datagram)
        elif name == "DATA":
            name, found = self._hear_data(datagram)
            fields |= found
        if name in {"INIT", "RESPONSE"}:
            fields["mac2"] = self._judged_mac2(datagram)
        return WgHeard(at, name, fields)

    def _judged_mac2(self, message: bytes) -> str:
        """Say what a handshake message's mac2 is, and keep what a COOKIE for it needs."""
        self._heard_macs = int.from_bytes(message[4:8], "little"), message[-32:-16]
        if message[-16:] == bytes(16):
            return "none"
        is_right = self._given and message[-16:] == mac(self._given, message[:-16])
        return "right" if is_right else "wrong"

    def _hear_cookie(self, message: bytes) -> None:
        if self._waiting is None or int.from_bytes(message[4:8], "little") != self._waiting[3]:
            raise DecodeError("COOKIE for another index than that of the INIT")
        got = wg_cookie.open_(public(NODE_KEY), message[8:32], message[32:], self._said_mac1)
        if got is None:
            raise DecodeError("COOKIE that does not open for the INIT that came before it")
        self._got = got

    def _hear_init(self, message: bytes) -> dict[str, int | str]:
        ours = public(PEER_KEY)
        if message[116:132] != mac(hash_(b"mac1----", ours), message[:116]):
            raise DecodeError("INIT whose mac1 is wrong")
        ephemeral = message[8:40]
        ck = hash_(_CONSTRUCTION)
        h = hash_(hash_(hash_(ck, _IDENTIFIER), ours), ephemeral)
        [ck] = kdf(ck, ephemeral, 1)
        ck, key = kdf(ck, dh(PEER_KEY, ephemeral), 2)
        static = open_(key, 0, message[40:88], h)
        h = hash_(h, message[40:88])
        ck, key = kdf(ck, dh(PEER_KEY, static), 2)
        stamp = open_(key, 0, message[88:116], h)
        h = hash_(h, message[88:116])
        index = int.from_bytes(message[4:8], "little")
        before = self._heard
        is_new = before is None or before[2] != ephemeral
        self._heard = ck, h, ephemeral, index
        return {
            "new": int(is_new),
            "stamp": stamp.hex(),
            "known": int(static == public(NODE_KEY)),
        }

    def _hear_response(self, message: bytes) -> None:
        if self._waiting is None:
            raise DecodeError("RESPONSE to nothing")
        ck, h, ephemeral, index = self._waiting
        if int.from_bytes(message[8:12], "little") != index:
            raise DecodeError("RESPONSE to another index")
        if message[60:76] != mac(hash_(b"mac1----", public(PEER_KEY)), message[:60]):
            raise DecodeError("RESPONSE whose mac1 is wrong")
        theirs = message[12:44]
        h = hash_(h, theirs)
        [ck] = kdf(ck, theirs, 1)
        [ck] = kdf(ck, dh(ephemeral, theirs), 1)
        [ck] = kdf(ck, dh(PEER_KEY, theirs), 1)
        ck, tau, key = kdf(ck, bytes(32), 3)
        h = hash_(h, tau)
        open_(key, 0, message[44:60], h)
        send, receive = kdf(ck, b"", 2)
        their_index = int.from_bytes(message[4:8], "little")
        self.sessions.append(_Keys(send, receive, index, their_index))
        self._waiting = None

    def _hear_data(self, message: bytes) -> tuple[str, dict[str, int | str]]:
        index = int.from_bytes(message[4:8], "little")
        counter = int.from_bytes(message[8:16], "little")
        mine = [number for number, keys in enumerate(self.sessions) if keys.ours == index]
        if not mine:
            raise DecodeError(f"DATA for index {index:#x}, which is no session's")
        number = mine[0]
        text = open_(self.sessions[number].receive, counter, message[16:])
        found: dict[str, int | str] = {"counter": counter, "session": number}
        if not text:
            return "KEEPALIVE", found
        length = int.from_bytes(text[2:4])
        if any(text[length:]):
            raise DecodeError("DATA whose padding is not zero")
        return "DATA", found | {"length": length, "padded": len(text) - length}


def inner_packet(source: int, target: int, size: int) -> bytes:
    """Return an IPv4 packet of `size` bytes between two hosts of 10.0.0.0/24."""
    head = bytearray(bytes((0x45, 0)) + size.to_bytes(2) + bytes((0, 1, 64, 0, 64, 17, 0, 0)))
    head += bytes((10, 0, 0, source, 10, 0, 0, target))
    total = sum(int.from_bytes(head[at : at + 2]) for at in range(0, 20, 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    head[10:12] = (~total & 0xFFFF).to_bytes(2)
    return bytes(head) + b"x" * (size - 20)


def _int(given: dict[str, Value], name: str, default: int) -> int:
    value = given.pop(name, default)
    if not isinstance(value, int):
        raise ValueError(f"{name}={value} is no number")  # noqa: TRY004 - of a text
    return value


def differs(words: Words, heard: WgHeard) -> str | None:
    """Say in what a datagram is not what a line expects; None if it is."""
    if words.name != heard.name:
        return f"{heard.name}, wanted {words.name}"
    for name, value in words.fields.items():
        if name in {"after", "before"}:
            continue
        if heard.fields.get(name) != value:
            return f"{heard.name} with {name} {heard.fields.get(name)}, wanted {value}"
    return None


def show(heard: WgHeard) -> str:
    """Return a datagram in the notation."""
    return " ".join(
        [heard.name, *(f"{k}={v}" for k, v in heard.fields.items() if k != "stamp")]
    )
