"""The Internet checksum. RFC 1071, RFC 1624; pseudo-headers: RFC 768, RFC 8200 section 8.1.

The one's complement sum of 16-bit words is arithmetic modulo 0xFFFF, and so is a whole buffer
read as one integer, because 2^16 is 1 modulo 0xFFFF. The only trap is zero, which has two
forms: a sum of nothing but zeros is 0, any other multiple of 0xFFFF is 0xFFFF.
"""

from wire.codec import ReadBuffer


def internet_checksum(buf: ReadBuffer, initial: int = 0) -> int:
    """Return the checksum of `buf`, complemented, as it goes into the header.

    An odd last byte counts as the high half of a word. `initial` is a sum that is not yet
    complemented, such as that of a pseudo-header. Over bytes that hold their own checksum the
    result is 0.
    """
    total = int.from_bytes(buf, "big")
    if len(buf) & 1:
        total <<= 8
    total += initial
    return 0xFFFF - (total % 0xFFFF or (0xFFFF if total else 0))


def update(checksum: int, old: int, new: int) -> int:
    """Return `checksum` after a covered word went from `old` to `new`. RFC 1624, section 3."""
    total = (0xFFFF - checksum) + (0xFFFF - old) + new
    return 0xFFFF - (total % 0xFFFF or (0xFFFF if total else 0))


def pseudo_header_sum(src: ReadBuffer, dst: ReadBuffer, protocol: int, length: int) -> int:
    """Return the uncomplemented sum of the pseudo-header of an upper-layer packet of `length`.

    Addresses of 4 or of 16 bytes: the words that the two versions add are the same.
    """
    return int.from_bytes(src, "big") + int.from_bytes(dst, "big") + protocol + length
