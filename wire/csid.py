"""Compressed SIDs: several segments in one IPv6 address. RFC 9800, section 4.1 (NEXT-CSID).

    | locator block | CSID | CSID | CSID | ... | 0 |      a container, as long as an address

Every CSID is `node_function` bits wide, which is the locator node and the function of the SID
that it stands for. The first is the active one; all bits behind it are its argument, and a node
that has acted on it moves them to its place and fills up with zeros. A CSID of zero is none: it
ends the container. F3216, a block of 32 bits and CSIDs of 16, holds six.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from wire.codec import ReadBuffer, check_size, check_uint

ADDRESS_SIZE = 16
ADDRESS_BITS = 128


class CsidStructure(NamedTuple):
    """Widths in bits. The argument is what is left of the 128."""

    block: int = 32
    node_function: int = 16

    @property
    def argument(self) -> int:
        return ADDRESS_BITS - self.block - self.node_function

    @property
    def capacity(self) -> int:
        """How many CSIDs one container holds."""
        return (ADDRESS_BITS - self.block) // self.node_function


F3216 = CsidStructure(32, 16)


def check_structure(structure: CsidStructure) -> None:
    """Raise ValueError for widths that are no multiples of 8 or do not fit an address."""
    block, node_function = structure
    if block % 8 or node_function % 8 or block < 0 or node_function <= 0:
        raise ValueError(f"structure is {block}+{node_function} bits, legal are multiples of 8")
    if block + node_function > ADDRESS_BITS:
        raise ValueError(f"structure is {block}+{node_function} bits, an address has 128")


def pack_container(
    block: ReadBuffer, csids: Sequence[int], structure: CsidStructure = F3216
) -> bytes:
    """Return the container of `csids`; of `block`, an address, only the block bits are used.

    Raise ValueError for more CSIDs than fit, none at all, or one that is zero.
    """
    check_size("block", block, ADDRESS_SIZE)
    check_structure(structure)
    if not 1 <= len(csids) <= structure.capacity:
        raise ValueError(f"{len(csids)} CSIDs, legal is 1 to {structure.capacity}")
    behind = ADDRESS_BITS - structure.block
    value = int.from_bytes(block, "big") >> behind << behind
    position = structure.argument
    for csid in csids:
        check_uint("CSID", csid, structure.node_function)
        if csid == 0:
            raise ValueError("CSID is 0x0, which ends a container")
        value |= csid << position
        position -= structure.node_function
    return value.to_bytes(ADDRESS_SIZE, "big")


def csids(container: ReadBuffer, structure: CsidStructure = F3216) -> tuple[int, ...]:
    """Return the CSIDs of a container up to its end, which is a zero or the last bit."""
    check_size("container", container, ADDRESS_SIZE)
    value = int.from_bytes(container, "big")
    mask = (1 << structure.node_function) - 1
    found = []
    position = structure.argument
    while position >= 0 and (csid := value >> position & mask):
        found.append(csid)
        position -= structure.node_function
    return tuple(found)


def shift(container: ReadBuffer, structure: CsidStructure = F3216) -> bytes:
    """Return the container with its first CSID gone. RFC 9800, section 4.1.1, N05 and N06."""
    check_size("container", container, ADDRESS_SIZE)
    value = int.from_bytes(container, "big")
    behind = ADDRESS_BITS - structure.block
    block = value >> behind << behind
    moved = (value << structure.node_function) & (1 << behind) - 1
    return (block | moved).to_bytes(ADDRESS_SIZE, "big")


def views(container: ReadBuffer, structure: CsidStructure = F3216) -> tuple[bytes, ...]:
    """Return the destination addresses that a capture shows on the way through a container.

    The first is what its sender sends; each node that acts on a CSID sends the next one.
    """
    seen = [bytes(container)]
    while len(csids(seen[-1], structure)) > 1:
        seen.append(shift(seen[-1], structure))
    return tuple(seen)


def last_csid(container: ReadBuffer, structure: CsidStructure = F3216) -> bytes:
    """Return the address that is left of a container when all CSIDs but one are used up."""
    return views(container, structure)[-1]


def is_last(container: ReadBuffer, structure: CsidStructure = F3216) -> bool:
    """Say whether nothing but zeros is behind the first CSID."""
    check_size("container", container, ADDRESS_SIZE)
    return not int.from_bytes(container, "big") & (1 << structure.argument) - 1


def compress(
    segments: Iterable[ReadBuffer], structure: CsidStructure = F3216
) -> tuple[bytes, ...]:
    """Return the containers of a path of SIDs, first segment first. RFC 9800, section 6.2.

    A SID of the structure is a block and one CSID, or several that must stay together (a
    composite such as uN and uA), with zeros behind. A container takes SIDs as long as the block
    is the same and there is room. Any other SID stays alone.
    """
    block = structure.block // 8
    containers: list[bytes] = []
    taken: tuple[int, ...] = ()  # by the last container; none where nothing may join it
    for segment in segments:
        address = bytes(segment)
        own = csids(address, structure)
        if own and pack_container(address, own, structure) != address:
            own = ()  # what looks like CSIDs is a SID of another structure
        joined = (*taken, *own)
        fits = own and taken and len(joined) <= structure.capacity
        if fits and address[:block] == containers[-1][:block]:
            containers[-1], taken = pack_container(address, joined, structure), joined
        else:
            containers.append(address)
            taken = own
    return tuple(containers)
