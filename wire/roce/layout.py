"""Headers of many odd fields as a table: where each field begins and how many bits it has.

For management datagrams, whose fields are counted in bits, are many, and come seldom. What
comes with every packet has a `Struct` of its own.
"""

from typing import Any, NamedTuple

from wire.codec import (
    ReadBuffer,
    TruncatedError,
    WriteBuffer,
    check_room,
    check_size,
    check_uint,
)


class Field(NamedTuple):
    """One row. A field of one bit is a bool, one of more than 64 is bytes, else an int."""

    name: str
    byte: int
    bits: int
    bit: int = 0  # within the byte, from the most significant


class Layout:
    """The fields of one header of a fixed size; what no field covers is reserved."""

    def __init__(self, name: str, size: int, *rows: tuple[str, int, int] | Field) -> None:
        self.name = name
        self.size = size
        self._fields = tuple(Field(*row) for row in rows)
        self._shifts = tuple(
            size * 8 - field.byte * 8 - field.bit - field.bits for field in self._fields
        )

    # Any: the types of the fields are those of the NamedTuple that is made of them.
    def unpack_from(self, buf: ReadBuffer, offset: int = 0) -> tuple[Any, ...]:
        """Return the values of the fields in the order of the rows, or raise TruncatedError."""
        if len(buf) - offset < self.size:
            raise TruncatedError(self.name, self.size, len(buf) - offset)
        raw = bytes(buf[offset : offset + self.size])
        word = int.from_bytes(raw, "big")
        values: list[int | bytes] = []
        for field, shift in zip(self._fields, self._shifts, strict=True):
            if field.bits > 64:
                values.append(raw[field.byte : field.byte + field.bits // 8])
            elif field.bits == 1:
                values.append(bool(word >> shift & 1))
            else:
                values.append(word >> shift & ((1 << field.bits) - 1))
        return tuple(values)

    def pack_into(self, values: tuple[Any, ...], buf: WriteBuffer, offset: int = 0) -> None:
        """Write the fields, zero between them. Raise ValueError for one that does not fit."""
        check_room(buf, offset, self.size)
        word = 0
        for value, field, shift in zip(values, self._fields, self._shifts, strict=True):
            if field.bits > 64:
                check_size(field.name, value, field.bits // 8)
                word |= int.from_bytes(value, "big") << shift
            else:
                check_uint(field.name, value, field.bits)
                word |= value << shift
        buf[offset : offset + self.size] = word.to_bytes(self.size, "big")
