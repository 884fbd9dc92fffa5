"""PFC, WireGuard and SRv6: forms, nonces, and steps from hop to hop."""

import pytest

from netem.analysis.check.srv6 import is_shift
from netem.analysis.records import CaptureReader
from netem.capture.runfolder import RunFolder
from netem.cli.options import make_plan
from netem.lab.simulate import simulate
from tests.netem.analysis.check.conftest import file_of, judged
from tests.netem.conftest import udp_frame
from wire import pcapng
from wire.csid import pack_container
from wire.pfc import Pfc, pfc_frame
from wire.wireguard import Initiation, Response, TransportData, packed

MAC = b"\x02\0\0\0\0\x01"


def clauses(rows, severity="violation"):
    return [one.clause for one in judged(file_of(rows)).findings if one.severity == severity]


def changed(frame, offset, value):
    frame = bytearray(frame)
    frame[offset] = value
    return bytes(frame)


def test_a_pfc_frame_has_its_form():
    frame = pfc_frame(MAC, Pfc.of({3: 0xFFFF}))
    assert judged(file_of([("h0:p0", frame)])).verdict == "pass"
    assert clauses([("h0:p0", changed(frame, 5, 2))]) == ["pfc/P1"]
    assert clauses([("h0:p0", frame[:34])]) == ["pfc/P1"]
    assert clauses([("h0:p0", frame[:20])]) == ["pfc/P1", "pfc/P1"]
    assert clauses([("h0:p0", changed(frame, 16, 1))]) == ["pfc/P2"]
    assert clauses([("h0:p0", changed(frame, 18, 1))], "warning") == ["pfc/P2"]
    assert clauses([("h0:p0", frame[:12] + b"\x81\0\0\1" + frame[12:])]) == ["pfc/P1"]


def datagram(source, message):
    """Return a frame; both use port 51820."""
    frame = udp_frame(source, "h1" if source == "h0" else "h0", packed(message), port=51820)
    frame[54:56] = (51820).to_bytes(2, "big")
    return (f"{source}:p0", bytes(frame))


@pytest.fixture
def session():
    key = bytes(32)
    return [
        datagram("h0", Initiation(7, key, bytes(48), bytes(28))),
        datagram("h1", Response(9, 7, key, bytes(16))),
        datagram("h0", TransportData(9, 0, bytes(32))),
        datagram("h1", TransportData(7, 0, bytes(32))),
        datagram("h0", TransportData(9, 1, bytes(32))),
    ]


def test_a_session_passes_and_a_nonce_used_again_does_not(session):
    assert judged(file_of(session)).verdict == "pass"
    again = datagram("h0", TransportData(9, 1, bytes(64)))
    assert clauses([*session, again]) == ["wg/D1"]
    assert clauses([*session, (*again, "duplicated by duplicate 1%")]) == []
    late = [datagram("h0", TransportData(9, n, bytes(32))) for n in (9000, 3, 3)]
    assert clauses([*session, *late]) == []  # too old to be sure
    twice = file_of([*session, session[-1]], whole=False)  # who captured it has it twice
    assert judged(twice).violations == 0
    assert clauses([*session, session[-1]]) == ["wg/D1"]
    within = [datagram("h0", TransportData(9, n, bytes(32))) for n in (900, 3, 3)]
    assert clauses([*session, *within]) == ["wg/D1"]


def test_messages_between_known_ends_have_their_form(session):
    port, frame = session[2]
    assert clauses([*session, (port, changed(frame, 63, 1))]) == ["wg/M1"]  # reserved
    assert clauses([*session, (port, changed(frame, 62, 9))]) == ["wg/M1"]  # type
    worn = datagram("h0", TransportData(9, (1 << 64) - 5, bytes(32)))
    assert clauses([*session, worn]) == ["wg/T5"]
    stray = datagram("h1", Response(9, 8, bytes(32), bytes(16)))
    assert clauses([*session, stray], "warning") == ["wg/M3"]


def test_udp_of_strangers_is_not_taken_for_a_tunnel():
    frame = bytes(udp_frame("h0", "h1", b"\4\0\0\0" + bytes(60), port=7))
    assert judged(file_of([("h0:p0", frame)])).why == "nothing to judge in 1 packets"


def test_shifts():
    block = bytes.fromhex("fcbbbb00") + bytes(12)
    three, two = (pack_container(block, csids) for csids in ((1, 2, 3), (2, 3)))
    assert is_shift(three, two)
    assert not is_shift(two, three)
    assert not is_shift(three, pack_container(block, (9, 3)))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Return the reader and the records of a lab whose packets follow segments."""
    plan, _ = make_plan("srv6-usid-six-hops")
    folder = RunFolder.create("srv6", tmp_path_factory.mktemp("runs") / "srv6")
    simulate(plan, folder, lambda _done, _total: None)
    with folder.capture.open("rb") as file:
        reader = CaptureReader(file)
        return reader, list(reader.records())


def rewritten(path, change):
    """Return the clauses that a capture breaks of which `change` changes one record."""
    reader, records = path
    data = [pcapng.section_header()]
    for one in reader.interfaces:
        link = f"link x, frames from {one.name} to {one.leads_to}"
        data.append(pcapng.interface_block(one.name, link))
    done = False
    for _, at, where, frame, original, comment, packet in records:
        bytes_ = bytearray(frame)
        if not done and packet is not None and reader.interfaces[where].name == "t0-p0-2:e1":
            done = change(bytes_)
        data.append(
            pcapng.enhanced_packet(
                where,
                at,
                bytes(bytes_),
                original_length=original,
                comment=comment,
                packet_id=packet,
            )
        )
    assert done
    return [one.clause for one in judged(b"".join(data)).findings]


@pytest.mark.slow
def test_a_step_that_is_none_is_found(path):
    def destination(frame):
        frame[45] ^= 1
        return frame[20] == 41  # without SRH: uSIDs alone

    def hop_limit(frame):
        frame[21] += 2
        return frame[20] == 41

    def segments_left(frame):
        if frame[20] != 43:
            return False
        frame[57] = 9
        return True

    assert "srv6/C1" in rewritten(path, destination)
    assert "srv6/C1" in rewritten(path, hop_limit)
    assert "srv6/S3" in rewritten(path, segments_left)
