"""The words of all families: packets made from a line of a case, and read back into fields.

Which family it is, `with service=` says: RC, UC, UD and CM are RoCE v2 (`roce_saying`,
`roce_hearing`, `cm_words`); MRC, SRV6, SWITCH, HOST and WG have modules of their own. Those of
RoCE v2:

Names are those of opcodes without their service, that of the connection; `UD.SEND_ONLY` has
another. ACKNOWLEDGE is called ACK, NAK or RNR by its syndrome. Fields that send:

    headers   psn ask se mig fecn becn pad pkey tver opcode qp va key length imm inv add swap
              compare original msn credit code timer syndrome qkey srcqp
    payload   data="text", or size=N from=N of the pattern, or size=N zero
    IP, UDP   ttl tos ident df port src=stranger dst=stranger udpsum=right udplen=+N
    Ethernet  vlan, the 16 bits of an 802.1Q tag; trailer=N bytes behind the packet
    late.*    late.ttl late.tos late.ident late.rsv late.fecn late.becn: after the ICRC was made
    wrong     icrc=N flips a bit of it; rsv and rsv7 set reserved bits

The same names are what is expected; `size` without `from` leaves the bytes open, and `port`
may be `high` (0xC000 and above) or `same` (as that of the packet before).
"""

from collections.abc import Iterator
from typing import TypeAlias

from netem.conform import (
    cm_words,
    host_node,
    mrc_saying,
    mrc_words,
    roce_hearing,
    sr_words,
    sw_words,
    wg_words,
)
from netem.conform.endpoint import Joined
from netem.conform.notation import WordError, Words
from netem.conform.roce_hearing import Heard
from netem.conform.roce_saying import Saying
from netem.conform.rules import broken

AnyHeard: TypeAlias = (
    Heard | sr_words.Routed | sw_words.Switched | mrc_words.MrcHeard | wg_words.WgHeard
)


def say(words: Words, joined: Joined) -> bytes:
    """Return the frame that a line asks for. WordError for a word that is not known."""
    try:
        return _said(words, joined)
    except WordError:
        raise
    except (ValueError, OverflowError) as error:  # also a number that its field cannot hold
        raise WordError(f"{words.name}: {error}") from error


def _said(words: Words, joined: Joined) -> bytes:
    service = joined.wants.service
    if service == "WG":
        return joined.wrap(*joined.peer.say(words))
    if service in {"SWITCH", "HOST"}:
        return sw_words.say_frame(words)
    if service in {"SRV6", "MRC"}:
        if service == "MRC":
            packet = mrc_saying.say_packet(words, joined)
        else:
            packet = sr_words.say_packet(words)
        return joined.theirs.mac + joined.ours.mac + b"\x86\xdd" + packet
    if service == "CM" and cm_words.is_message(words.name):
        datagram, mad = cm_words.say_message(words, joined)
        return Saying(datagram, joined, mad).frame()
    return Saying(words, joined).frame()


def hear(at: int, frame: bytes, joined: Joined) -> AnyHeard | None:
    """Return the packet in a frame of the endpoint, None for one that is not for us.

    DecodeError for a RoCE packet that cannot be read.
    """
    if joined.wants.service == "WG":
        return joined.peer.hear(at, frame[42:], int.from_bytes(frame[36:38]))
    if joined.wants.service == "MRC":
        return mrc_words.hear_packet(at, frame[14:], joined)
    if joined.wants.service == "SRV6":
        return sr_words.hear_packet(at, frame[14:], *sr_words.labelled(frame))
    if joined.wants.service == "SWITCH":
        return sw_words.hear_frame(at, frame)
    if joined.wants.service == "HOST":
        return host_node.hear_frame(at, frame)
    return roce_hearing.hear(at, frame, joined)


def rules_broken(heard: AnyHeard, frame: bytes) -> Iterator[tuple[str, str]]:
    """Yield (clause, what is wrong) for each rule for all packets that one breaks."""
    if isinstance(heard, Heard):
        yield from broken(frame)
    elif isinstance(heard, mrc_words.MrcHeard) and heard.wrong:
        clause, _, what = heard.wrong.partition(": ")
        yield clause, what
    elif isinstance(heard, sw_words.Switched):
        for rule in heard.wrong:
            clause, _, what = rule.partition(": ")
            yield clause, what


def differs(words: Words, heard: AnyHeard, joined: Joined) -> str | None:
    """Say in what a packet is not what a line expects; None if it is."""
    if isinstance(heard, sr_words.Routed):
        return sr_words.differs(words, heard, joined.said)
    if isinstance(heard, sw_words.Switched):
        return sw_words.differs(words, heard)
    if isinstance(heard, mrc_words.MrcHeard):
        return mrc_words.differs(words, heard, joined)
    if isinstance(heard, wg_words.WgHeard):
        return wg_words.differs(words, heard)
    return roce_hearing.differs(words, heard, joined)


def show(heard: AnyHeard, joined: Joined) -> str:
    """Return a packet in the notation, as a case would expect it."""
    if isinstance(heard, sr_words.Routed):
        return sr_words.show(heard)
    if isinstance(heard, sw_words.Switched):
        return sw_words.show(heard)
    if isinstance(heard, mrc_words.MrcHeard):
        return mrc_words.show(heard, joined)
    if isinstance(heard, wg_words.WgHeard):
        return wg_words.show(heard)
    return roce_hearing.show(heard, joined)
