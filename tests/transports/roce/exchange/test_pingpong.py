"""The text exchange of the libibverbs examples, against what they said."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.transports.roce.exchange.evidence import over_tcp
from tests.wire.roce.evidence import needs_captures
from tests.wire.strategies import octets, uint
from transports.roce.exchange.dialogue import MAX_WAITING
from transports.roce.exchange.pingpong import DONE, SRQ_LINES, Address, PeerKnown, PingPong
from wire.codec import DecodeError

REPEATABLE = settings(max_examples=30, deadline=None, derandomize=True, database=None)
GID = bytes.fromhex("00000000000000000000ffff0a000001")
TOOLS = ["ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_rc_pingpong-ipv6"]
addresses = st.builds(Address, uint(24), uint(24), octets(16), uint(16))


def lines_of(said, *, by_client):
    whole = b"".join(data for each, data in said if each is by_client)
    whole = whole.removesuffix(DONE)
    return [whole[at : at + 52] for at in range(0, len(whole), 52)]


def test_a_line_is_that_of_the_tool():
    """T1: the line of the client in the capture of ibv_rc_pingpong."""
    line = b"0000:000011:48e195:00000000000000000000ffff0a000001\0"
    assert Address(0x11, 0x48E195, GID).pack() == line
    assert Address.unpack(line) == Address(0x11, 0x48E195, GID)


@needs_captures
@pytest.mark.parametrize("name", [*TOOLS, "ibv_srq_pingpong"])
@pytest.mark.parametrize("is_client", [True, False])
def test_we_say_what_the_tool_said_in_the_same_order(name, is_client):
    said = over_tcp(name)
    lines = SRQ_LINES if "srq" in name else 1
    ours = [Address.unpack(line) for line in lines_of(said, by_client=is_client)]
    theirs = [Address.unpack(line) for line in lines_of(said, by_client=not is_client)]
    assert len(ours) == len(theirs) == lines
    mine = tuple(address for address in ours if address.qpn)
    talk = PingPong(mine, is_client=is_client, lines=lines)
    written = []
    for by_client, data in said:
        if by_client is is_client:
            continue
        written += talk.writes()
        talk.feed(data)
        for event in talk.events():
            assert event == PeerKnown(tuple(each for each in theirs if each.qpn))
            before = [*talk.writes()]
            assert before == ([DONE] if is_client else [])
            written += before
            talk.proceed()
    written += talk.writes()
    assert talk.is_done
    assert b"".join(written) == b"".join(data for by, data in said if by is is_client)
    assert {len(write) for write in written} == ({52, 5} if is_client else {52})


def test_the_server_answers_only_when_its_queue_pair_is_ready():
    talk = PingPong((Address(2, 3, GID),), is_client=False)
    assert [*talk.writes()] == []
    talk.feed(Address(7, 8, GID).pack())
    assert [*talk.events()] == [PeerKnown((Address(7, 8, GID),))]
    assert [*talk.writes()] == []
    talk.feed(DONE)
    talk.proceed()
    assert [*talk.writes()] == [Address(2, 3, GID).pack()]
    assert talk.is_done


@REPEATABLE
@given(addresses)
def test_a_line_survives_the_round_trip(address):
    assert len(address.pack()) == 52
    assert Address.unpack(address.pack()) == address


@REPEATABLE
@given(st.binary(max_size=60))
def test_any_bytes_are_a_line_or_a_decode_error(raw):
    with suppress(DecodeError):
        Address.unpack(raw)


@REPEATABLE
@given(st.lists(st.binary(max_size=80), max_size=8), st.booleans())
def test_no_bytes_of_a_peer_raise(portions, is_client):
    talk = PingPong((Address(2, 3, GID),), is_client=is_client)
    for portion in portions:
        talk.feed(portion)
    talk.closed()
    talk.feed(b"more")
    talk.closed()
    assert talk.is_over


@REPEATABLE
@given(st.lists(st.integers(1, 60), min_size=1, max_size=80))
def test_portions_make_no_difference(cuts):
    theirs = (Address(9, 9, GID), Address(10, 9, GID))
    whole = b"".join(address.pack() for address in theirs) + DONE
    talk = PingPong((Address(2, 3, GID),) * 2, is_client=False, lines=2)
    at = 0
    for cut in [*cuts, len(whole)]:
        talk.feed(whole[at : at + cut])
        at += cut
        for event in talk.events():
            assert event.addresses == theirs
            talk.proceed()
    assert talk.is_done
    assert talk.failure is None


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"x" * 52, "is not LID:QPN:PSN:GID"),
        (Address(0, 1, GID).pack(), "no line has a queue pair"),
    ],
)
def test_what_cannot_be_ends_the_dialogue_and_says_why(line, problem):
    talk = PingPong((Address(2, 3, GID),), is_client=False)
    talk.feed(line)
    assert problem in talk.failure
    assert [*talk.events()] == []
    assert [*talk.writes()] == []
    assert talk.is_over


def test_another_word_than_done_is_told():
    talk = PingPong((Address(2, 3, GID),), is_client=False)
    talk.feed(Address(7, 8, GID).pack() + b"nope\0")
    talk.proceed()
    assert talk.failure == "b'nope\\x00' is not \"done\""


def test_a_peer_that_closes_too_early_is_told():
    talk = PingPong((Address(2, 3, GID),), is_client=True)
    talk.feed(b"0000:")
    talk.closed()
    assert talk.failure == (
        "the peer closed the connection while an address was awaited: 5 of 52 bytes"
    )


def test_a_flood_ends_the_dialogue():
    talk = PingPong((Address(2, 3, GID),), is_client=False)
    talk.feed(Address(7, 8, GID).pack())
    talk.feed(bytes(MAX_WAITING + 1))
    assert "came while our own side was not ready" in talk.failure


def test_a_call_that_nothing_waits_for_is_the_owners_mistake():
    talk = PingPong((Address(2, 3, GID),), is_client=False)
    with pytest.raises(ValueError, match="proceed while an address was awaited"):
        talk.proceed()
    with pytest.raises(ValueError, match="0 addresses, legal is 1 to 1"):
        PingPong((), is_client=True)
    with pytest.raises(ValueError, match="does not fit 24 bits"):
        Address(1 << 24, 0, GID).pack()
