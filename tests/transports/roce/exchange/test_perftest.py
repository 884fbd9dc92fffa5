"""The exchange of perftest over TCP and over rdma_cm, against what it said."""

import re
import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.transports.roce.exchange.evidence import over_sends, over_tcp
from tests.wire.roce.evidence import needs_captures
from tests.wire.strategies import octets, uint
from transports.roce.exchange.keys import KEYS, NO_KEYS, TEXT_SIZE, Keys
from transports.roce.exchange.perftest import (
    DONE,
    Carrier,
    ConnectNow,
    Finished,
    KeysKnown,
    Perftest,
    Plan,
    Report,
    RunNow,
    Verb,
)
from wire.codec import DecodeError

REPEATABLE = settings(max_examples=30, deadline=None, derandomize=True, database=None)
GID = bytes.fromhex("00000000000000000000ffff0a000001")
OURS, THEIRS = Keys(0x21, 5, GID, 1, 0x1234, 0x5000), Keys(0x31, 6, GID, 1, 0x4321, 0x6000)
SENDS, ALL = Carrier.RDMA_CM, Carrier.RDMA_CM_ALL
TESTS = {
    "ib_write_bw-tcp": Plan(Verb.WRITE),
    "ib_write_bw-2qp": Plan(Verb.WRITE),
    "ib_write_bw-uc": Plan(Verb.WRITE),
    "ib_write_bw-tclass106": Plan(Verb.WRITE),
    "ib_write_bw-bidir": Plan(Verb.WRITE, is_bidirectional=True),
    "ib_read_bw-tcp": Plan(Verb.READ),
    "ib_send_bw-tcp": Plan(Verb.SEND),
    "ib_send_bw-ud": Plan(Verb.SEND),
    "ib_atomic_bw-fetch_add": Plan(Verb.ATOMIC),
    "ib_atomic_bw-cmp_swap": Plan(Verb.ATOMIC),
    "ib_write_lat-tcp": Plan(Verb.WRITE, is_latency=True),
    "ib_write_lat-ipv6": Plan(Verb.WRITE, is_latency=True),
    "ib_send_lat-tcp": Plan(Verb.SEND, is_latency=True),
    "ib_read_lat-tcp": Plan(Verb.READ, is_latency=True),
    "ib_write_bw-comm_rdma_cm": Plan(Verb.WRITE, carrier=SENDS),
    "ib_write_bw-rdmacm": Plan(Verb.WRITE, carrier=ALL),
    "ib_send_bw-rdmacm": Plan(Verb.SEND, carrier=ALL),
    "ib_read_lat-rdmacm": Plan(Verb.READ, is_latency=True, carrier=ALL),
}
PAD = slice(20, 24)  # of the structure: what happened to be in the tool's memory


def items(name):
    return over_tcp(name) if TESTS[name].carrier is Carrier.TCP else over_sends(name)


def keys_of(said, *, by_client):
    """Return the keys that one side said first, each queue pair once."""
    found = []
    for by, data in said:
        if by is not by_client or data == NO_KEYS or len(data) not in {TEXT_SIZE, KEYS.size}:
            continue
        keys = Keys.unpack_text(data) if len(data) == TEXT_SIZE else Keys.unpack(data)
        if keys not in found:
            found.append(keys)
    return tuple(found)


def report_of(said, *, by_client):
    """Return the five figures that one side said, if it said any."""
    figures = [data for by, data in said if by is by_client and len(data) == 8]
    if not figures:
        return None
    return Report(*struct.unpack("!QQddd", b"".join(figures)))


def without_pad(data):
    if len(data) != KEYS.size:
        return data
    return data[: PAD.start] + bytes(4) + data[PAD.stop :]


@needs_captures
@pytest.mark.parametrize("is_client", [True, False], ids=["client", "server"])
@pytest.mark.parametrize("name", TESTS)
def test_we_say_what_the_tool_said_in_the_same_order(name, is_client):
    """T3 to T5, and C27: every item of either side, one write each."""
    said = items(name)
    plan = TESTS[name]
    ours, theirs = (keys_of(said, by_client=by is is_client) for by in (True, False))
    report = report_of(said, by_client=is_client)
    talk = Perftest(plan, ours, is_client=is_client)
    told, written = [], [*talk.writes()]
    for by_client, data in said:
        if by_client is is_client:
            continue
        talk.feed(data)
        written += talk.writes()
        for event in talk.events():
            told.append(event)
            if isinstance(event, RunNow):
                talk.ran(report)
            elif not isinstance(event, Finished):
                talk.proceed()
            written += talk.writes()
    assert talk.failure is None
    assert talk.is_done
    wanted = [without_pad(data) for by, data in said if by is is_client]
    assert written == wanted
    connects = [ConnectNow(1)] if plan.carrier is ALL else []
    known = KeysKnown(theirs, 1024, 4096, 64)
    assert told[:-1] == [*connects, known, RunNow()]
    their_report = report_of(said, by_client=not is_client)
    assert repr(told[-1]) == repr(Finished(their_report))


@needs_captures
@pytest.mark.parametrize("name", ["ib_write_bw-tcp", "ib_write_lat-ipv6"])
def test_t6_the_text_of_the_tool_is_108_bytes(name):
    """The last byte of the GID has two digits; a colon and a NUL end it."""
    texts = [data for _, data in over_tcp(name) if len(data) == TEXT_SIZE]
    assert texts
    for text in texts:
        assert re.fullmatch(rb".*:[0-9a-f]{2}:[0-9a-f]{8}:\0", text)
        assert Keys.unpack_text(text).pack_text() == text


@needs_captures
@pytest.mark.parametrize("name", [name for name, plan in TESTS.items() if plan.carrier is ALL])
def test_the_structure_of_the_tool_is_56_bytes(name):
    structures = [data for _, data in over_sends(name) if len(data) == KEYS.size]
    assert structures
    for data in structures:
        assert Keys.unpack(data).pack() == without_pad(data)


keys_values = st.builds(  # all but the index, which the text has not
    Keys,
    uint(24),
    uint(24),
    octets(16),
    uint(16),
    uint(32),
    uint(64),
    uint(32),
    uint(16),
    gid_index=st.just(0),
)


@REPEATABLE
@given(keys_values, uint(32))
def test_keys_survive_both_round_trips(keys, gid_index):
    assert len(keys.pack_text()) == TEXT_SIZE
    assert Keys.unpack_text(keys.pack_text()) == keys
    indexed = keys._replace(gid_index=gid_index)
    assert len(indexed.pack()) == KEYS.size == 56
    assert Keys.unpack(indexed.pack()) == indexed


@REPEATABLE
@given(st.binary(max_size=120))
def test_any_bytes_are_keys_or_a_decode_error(raw):
    for unpack in Keys.unpack_text, Keys.unpack:
        with suppress(DecodeError):
            unpack(raw)


def both(plan, our_count=1, **fields):
    mine = tuple(OURS._replace(qpn=OURS.qpn + n) for n in range(our_count))
    yours = tuple(THEIRS._replace(qpn=THEIRS.qpn + n) for n in range(our_count))
    return (
        Perftest(plan, mine, is_client=True, **fields),
        Perftest(plan, yours, is_client=False),
    )


def play(client, server, report=None, lost=()):
    """Carry what each says to the other until nothing moves; return what both were told."""
    told = ([], [])
    moved = True
    while moved:
        moved = False
        for end, (speaker, hearer) in enumerate(((client, server), (server, client))):
            for data in speaker.writes():
                if data not in lost:
                    hearer.feed(data)
                moved = True
            for event in speaker.events():
                moved = True
                told[end].append(event)
                if isinstance(event, RunNow):
                    speaker.ran(report)
                elif not isinstance(event, Finished):
                    speaker.proceed()
    return told


@pytest.mark.parametrize("carrier", Carrier)
@pytest.mark.parametrize("is_latency", [True, False])
@pytest.mark.parametrize("is_bidirectional", [True, False])
@pytest.mark.parametrize("verb", Verb)
@pytest.mark.parametrize("qps", [1, 4])
def test_both_sides_of_every_plan_end(verb, is_latency, is_bidirectional, carrier, qps):
    client, server = both(Plan(verb, is_latency, is_bidirectional, carrier), qps)
    report = Report(64, 10, 1.5, 0.5, 0.25)
    told = play(client, server, report)
    assert client.is_done
    assert server.is_done
    for events in told:
        known = next(event for event in events if isinstance(event, KeysKnown))
        assert (known.path_mtu, len(known.keys)) == (1024, qps)
        assert events[-1].report in {None, report}


def test_the_smaller_mtu_and_the_larger_buffers_are_used():
    client, server = both(Plan(Verb.WRITE), path_mtu=4096, cycle_buffer=65536, cache_line=32)
    for events in play(client, server):
        known = next(event for event in events if isinstance(event, KeysKnown))
        assert (known.path_mtu, known.cycle_buffer, known.cache_line) == (1024, 65536, 64)


def test_with_connections_of_their_own_keys_are_known_later():
    client, server = both(Plan(Verb.WRITE, carrier=ALL))
    later = OURS._replace(qpn=0x99)
    client.set_keys((later,))
    with pytest.raises(ValueError, match="2 keys, the dialogue is about 1"):
        client.set_keys((later, later))
    told = play(client, server)
    assert told[1][1].keys == (later,)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (b"nonsense".ljust(16, b"\0"), "b'nonsense' is no version of perftest"),
        (b"5.60".ljust(16, b"\0"), "perftest 5.60 is too old, at least 5.70"),
        (b"6.06".ljust(16, b"\0") + b"\x80\0\0\0", "the cycle buffer is 0x80000000"),
        (
            b"6.06".ljust(16, b"\0") + b"\0\0\x10\0\0\0\0\x40" + b"9\0",
            "is no code of a path MTU",
        ),
        (
            b"6.06".ljust(16, b"\0") + b"\0\0\x10\0\0\0\0\x40" + b"3\0" + b"x" * 108,
            "does not end as keys do",
        ),
        (
            b"6.06".ljust(16, b"\0") + b"\0\0\x10\0\0\0\0\x40" + b"3\0" + b"x" * 106 + b":\0",
            "is not keys",
        ),
    ],
)
def test_what_cannot_be_ends_the_dialogue_and_says_why(said, problem):
    talk = Perftest(Plan(Verb.WRITE), (OURS,), is_client=False)
    talk.feed(said)
    assert problem in talk.failure
    assert talk.is_over
    talk.feed(b"more")
    assert [*talk.events()] == []


@pytest.mark.parametrize("said", [b"", b"don"])
def test_a_peer_may_close_instead_of_its_last_word(said):
    """A tool closes without reading ours: a reset, which overtakes what the link has lost."""
    client, server = both(Plan(Verb.SEND))
    play(client, server, lost=(DONE,))
    assert not client.is_over
    client.feed(said)
    client.closed()
    assert [*client.events()] == [Finished(None)]
    assert client.is_done
    assert client.failure is None


@REPEATABLE
@given(st.lists(st.binary(max_size=200), max_size=10), st.sampled_from(sorted(TESTS)))
def test_no_bytes_of_a_peer_raise(portions, name):
    good = [b"6.06".ljust(16, b"\0"), b"\0\0\x10\0", b"\0\0\0\x40", b"3\0"]
    talk = Perftest(TESTS[name], (OURS,), is_client=False)
    for portion in [*good, *portions]:
        talk.feed(portion)
        for event in talk.events():
            if not isinstance(event, Finished):
                talk.proceed()
    talk.closed()
    assert talk.is_over


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"path_mtu": 1500}, "path_mtu is 1500, legal is 256, 512, 1024, 2048, 4096"),
        ({"keys": ()}, "keys is empty"),
        ({"cycle_buffer": 1 << 31}, "does not fit 31 bits"),
    ],
)
def test_what_cannot_be_said_is_the_owners_mistake(fields, problem):
    values = {"plan": Plan(Verb.WRITE), "keys": (OURS,), "is_client": True} | fields
    with pytest.raises(ValueError, match=problem):
        Perftest(**values)
