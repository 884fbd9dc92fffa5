"""The four messages of WireGuard. WireGuard paper, section 5.4.

All integers are little-endian. The paper has one byte of type and three reserved bytes that are
zero; implementations compare the four as one word, and so do we: a reserved byte that is not
zero is another type, and refused.

What is encrypted stays as bytes: opening it is the business of `transports.overlay`.
"""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple, Self, TypeAlias

from wire.codec import (
    FieldError,
    ReadBuffer,
    TruncatedError,
    WriteBuffer,
    check_room,
    check_size,
    check_uint,
)

TYPE = Struct("<I")  # type and three reserved bytes
# type | sender | ephemeral | static | timestamp | mac1 | mac2
INITIATION = Struct("<II32s48s28s16s16s")
RESPONSE = Struct(
    "<III32s16s16s16s"
)  # type | sender | receiver | ephemeral | empty | mac1 | mac2
COOKIE_REPLY = Struct("<II24s32s")  # type | receiver | nonce | cookie
TRANSPORT = Struct("<IIQ")  # type | receiver | counter; the encrypted packet is behind it

TAG_SIZE = 16  # what the AEAD adds to what it encrypts
MAC_SIZE = 16
MACS_SIZE = 2 * MAC_SIZE  # mac1 and mac2 end an initiation and a response
MIN_TRANSPORT_SIZE = TRANSPORT.size + TAG_SIZE  # of a keepalive: nothing, encrypted
NO_MAC = bytes(MAC_SIZE)  # mac2 while there is no cookie


class MessageType(IntEnum):
    """The first word of a message."""

    INITIATION = 1
    RESPONSE = 2
    COOKIE_REPLY = 3
    TRANSPORT = 4


class Initiation(NamedTuple):
    """The first message of a handshake, initiator to responder. Section 5.4.2."""

    sender_index: int
    ephemeral: bytes  # unencrypted_ephemeral
    encrypted_static: bytes
    encrypted_timestamp: bytes
    mac1: bytes = NO_MAC
    mac2: bytes = NO_MAC

    @property
    def size(self) -> int:
        return INITIATION.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        """Raise TruncatedError, or FieldError for another type or a reserved byte."""
        _check(buf, offset, INITIATION.size, MessageType.INITIATION)
        return cls(*INITIATION.unpack_from(buf, offset)[1:])

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        check_uint("sender_index", self.sender_index, 32)
        check_size("ephemeral", self.ephemeral, 32)
        check_size("encrypted_static", self.encrypted_static, 32 + TAG_SIZE)
        check_size("encrypted_timestamp", self.encrypted_timestamp, 12 + TAG_SIZE)
        check_size("mac1", self.mac1, MAC_SIZE)
        check_size("mac2", self.mac2, MAC_SIZE)
        INITIATION.pack_into(buf, offset, MessageType.INITIATION, *self)


class Response(NamedTuple):
    """The second message, responder to initiator. Section 5.4.3."""

    sender_index: int
    receiver_index: int
    ephemeral: bytes  # unencrypted_ephemeral
    encrypted_nothing: bytes
    mac1: bytes = NO_MAC
    mac2: bytes = NO_MAC

    @property
    def size(self) -> int:
        return RESPONSE.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        """Raise TruncatedError, or FieldError for another type or a reserved byte."""
        _check(buf, offset, RESPONSE.size, MessageType.RESPONSE)
        return cls(*RESPONSE.unpack_from(buf, offset)[1:])

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        check_uint("sender_index", self.sender_index, 32)
        check_uint("receiver_index", self.receiver_index, 32)
        check_size("ephemeral", self.ephemeral, 32)
        check_size("encrypted_nothing", self.encrypted_nothing, TAG_SIZE)
        check_size("mac1", self.mac1, MAC_SIZE)
        check_size("mac2", self.mac2, MAC_SIZE)
        RESPONSE.pack_into(buf, offset, MessageType.RESPONSE, *self)


class CookieReply(NamedTuple):
    """What one under load answers a handshake message with. It has no macs. Section 5.4.7."""

    receiver_index: int  # the sender index of the message that it answers
    nonce: bytes
    encrypted_cookie: bytes

    @property
    def size(self) -> int:
        return COOKIE_REPLY.size

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        """Raise TruncatedError, or FieldError for another type or a reserved byte."""
        _check(buf, offset, COOKIE_REPLY.size, MessageType.COOKIE_REPLY)
        return cls(*COOKIE_REPLY.unpack_from(buf, offset)[1:])

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        check_uint("receiver_index", self.receiver_index, 32)
        check_size("nonce", self.nonce, 24)
        check_size("encrypted_cookie", self.encrypted_cookie, 16 + TAG_SIZE)
        COOKIE_REPLY.pack_into(buf, offset, MessageType.COOKIE_REPLY, *self)


class TransportData(NamedTuple):
    """One encrypted packet, to the end of the datagram. Section 5.4.6.

    The sender pads what it encrypts to a multiple of 16 bytes; the receiver must not count on
    it. Nothing, encrypted, is a keepalive.
    """

    receiver_index: int
    counter: int
    encrypted_packet: ReadBuffer  # a view when unpacked

    @property
    def size(self) -> int:
        return TRANSPORT.size + len(self.encrypted_packet)

    @property
    def is_keepalive(self) -> bool:
        return len(self.encrypted_packet) == TAG_SIZE

    @classmethod
    def unpack_from(cls, buf: ReadBuffer, offset: int = 0) -> Self:
        """Raise TruncatedError, or FieldError for another type or a reserved byte."""
        _check(buf, offset, MIN_TRANSPORT_SIZE, MessageType.TRANSPORT)
        _, receiver_index, counter = TRANSPORT.unpack_from(buf, offset)
        return cls(receiver_index, counter, memoryview(buf)[offset + TRANSPORT.size :])

    def pack_into(self, buf: WriteBuffer, offset: int = 0) -> None:
        check_uint("receiver_index", self.receiver_index, 32)
        check_uint("counter", self.counter, 64)
        if len(self.encrypted_packet) < TAG_SIZE:
            raise ValueError(f"encrypted_packet has no room for its tag of {TAG_SIZE} bytes")
        check_room(buf, offset, self.size)
        TRANSPORT.pack_into(
            buf, offset, MessageType.TRANSPORT, self.receiver_index, self.counter
        )
        start = offset + TRANSPORT.size
        buf[start : start + len(self.encrypted_packet)] = self.encrypted_packet


Message: TypeAlias = Initiation | Response | CookieReply | TransportData

_FIXED: dict[int, type[Initiation | Response | CookieReply]] = {
    MessageType.INITIATION: Initiation,
    MessageType.RESPONSE: Response,
    MessageType.COOKIE_REPLY: CookieReply,
}


def unpack(datagram: ReadBuffer) -> Message:
    """Return the message that is the whole of `datagram`, a UDP payload.

    Raise TruncatedError, or FieldError for an unknown type, a reserved byte, or a message of
    the handshake with anything behind it: its size is part of what it is.
    """
    if len(datagram) < TYPE.size:
        raise TruncatedError("WireGuard.type", TYPE.size, len(datagram))
    (word,) = TYPE.unpack_from(datagram)
    if word == MessageType.TRANSPORT:
        return TransportData.unpack_from(datagram)
    message = _FIXED.get(word)
    if message is None:
        raise FieldError("WireGuard.type", word, "0x1 to 0x4")
    value = message.unpack_from(datagram)
    if len(datagram) != value.size:
        raise FieldError("WireGuard.length", len(datagram), f"{value.size:#x}")
    return value


def packed(message: Message) -> bytearray:
    """Return the bytes of `message`."""
    buf = bytearray(message.size)
    message.pack_into(buf)
    return buf


def _check(buf: ReadBuffer, offset: int, size: int, want: MessageType) -> None:
    if len(buf) - offset < size:
        raise TruncatedError(f"WireGuard {want.name.lower()}", size, len(buf) - offset)
    (word,) = TYPE.unpack_from(buf, offset)
    if word != want:
        raise FieldError("WireGuard.type", word, f"{want:#x}")
