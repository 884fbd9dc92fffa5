"""The set-up of a queue pair over a byte stream. mrc-emu/1, 12.7."""

import json
import select
import socket
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transports.mrc.setup import (
    MAX_MESSAGE,
    READINGS,
    Ready,
    Region,
    Settled,
    Setup,
    SetupParameters,
    SetupRole,
)
from transports.mrc.srv6 import Row

A = SetupParameters(
    qpn=0x111, start_psn=7, addrs=("fd00::1", "fd00:1::1"), path_mtu=4096, dynamic_mpr=True,
    mrs=(Region(0x1000, 4096, 0x11223344),), srv6_rows=(Row(1, 0), None),
)  # fmt: skip
B = SetupParameters(
    qpn=0x222, start_psn=9, addrs=("fd00::2", None), path_mtu=1024, dynamic_mpr=True,
    trim_nack=False, mpr_dest=4,
)  # fmt: skip


def ends(a=A, b=B):
    return Setup(SetupRole.CONNECTING, a), Setup(SetupRole.LISTENING, b)


def carry(one, other, piece=10_000):
    """Carry what each has written to the other until both are silent, in pieces."""
    moved = True
    while moved:
        moved = False
        for sender, receiver in ((one, other), (other, one)):
            for data in list(sender.writes()):
                moved = True
                for start in range(0, len(data), piece):
                    receiver.feed(data[start : start + piece])


def message(**keys):
    text = json.dumps(keys).encode()
    return len(text).to_bytes(4, "big") + text


def said_by(setup):
    return [json.loads(data[4:]) for data in setup.writes()]


@pytest.mark.parametrize("piece", [1, 3, 10_000])
def test_both_learn_of_each_other_and_are_ready(piece):
    one, other = ends()
    carry(one, other, piece)
    (at_one,), (at_other,) = one.events(), other.events()
    assert at_other == Settled(A, 1024, dynamic_mpr=True)
    assert at_one.theirs == replace(B, path_mtu=1024)
    assert at_one.path_mtu == 1024
    one.proceed()
    carry(one, other, piece)
    assert not one.is_done
    other.proceed()
    carry(one, other, piece)
    assert one.is_done
    assert other.is_done
    assert list(one.events()) == list(other.events()) == [Ready()]


def test_the_offer_is_the_message_of_the_profile():
    one, _ = ends()
    (data,) = one.writes()
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    said = json.loads(data[4:])
    assert said["type"] == "offer"
    assert said["profile"] == "mrc-emu/1"
    assert said["caps"] == {"dynamic_mpr": True, "trim_nack": True, "svc_time": False}
    assert said["mrs"] == [{"va": 0x1000, "length": 4096, "rkey": 0x11223344}]
    assert said["srv6_rows"] == [{"t0": 1, "downlink": 0}, None]
    assert said["protocol_versions"] == [1]


def offered(**changes):
    """Return what a listening side makes of an offer with some keys changed; None: left out."""
    (said,) = said_by(ends()[0])
    said = {key: value for key, value in {**said, **changes}.items() if value is not None}
    _, other = ends()
    other.feed(message(**said))
    return other


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"profile": "mrc-emu/2"}, "profile is 'mrc-emu/2', ours is 'mrc-emu/1'"),
        ({"type": "answer"}, "type is 'answer', 'offer' was awaited"),
        ({"qpn": None}, "qpn is missing"),
        ({"qpn": 2}, "qpn is 2, legal is 16 to 16777215"),
        ({"qpn": True}, "qpn is no int"),
        ({"start_psn": 1 << 24}, "start_psn is 16777216, legal is 0 to 16777215"),
        ({"mpr_dest": 0}, "mpr_dest is 0, legal is 1 to 255"),
        ({"path_mtu": 1000}, "path_mtu is 1000, legal are 256, 512, 1024, 2048, 4096"),
        ({"udp_dport": 4792}, "udp_dport is 4792, legal are 4791 and 4971"),
        ({"ev_format": "udp16"}, "ev_format is 'udp16' there, 'stev32' here"),
        ({"time_dilation": 1000}, "time_dilation is 1000 there, 1 here"),
        ({"time_dilation": "x"}, "time_dilation is missing, or no number"),
        ({"addrs": []}, "addrs has 0 planes, legal are 1 to 8"),
        ({"addrs": ["fd00::1"] * 9}, "addrs has 9 planes, legal are 1 to 8"),
        ({"addrs": ["h0"]}, "addrs[0] is no address"),
        ({"addrs": [None, "fd00:1::1"]}, "addrs have no plane in common"),
        ({"protocol_versions": [2, 3]}, "protocol versions are 2, 3; we speak 1"),
        ({"protocol_versions": []}, "protocol versions are none; we speak 1"),
        ({"readings": {"icrc": False}}, "readings.icrc is false there, true here; give both"
                                        " ends the same"),
        ({"readings": {"icrc": 1}}, "readings.icrc is no bool"),
        ({"readings": []}, "readings is no dict"),
        ({"mrs": [{"va": 0, "length": 1, "rkey": 1}] * 257},
         "mrs has 257 entries, legal are 256"),
        ({"mrs": [7]}, "mrs holds what is no object"),
        ({"mrs": [{"va": 0}]}, "length is missing"),
        ({"srv6_rows": [{"t0": 256, "downlink": 0}]}, "t0 is 256, legal is 0 to 255"),
        ({"caps": []}, "caps is no dict"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said_to_both(changes, why):
    other = offered(**changes)
    assert other.failure == why
    assert said_by(other) == [{"type": "error", "profile": "mrc-emu/1", "reason": why}]
    one, _ = ends()
    list(one.writes())
    one.feed(message(type="error", reason=why))
    assert one.failure == f"the peer refuses: {why}"
    assert not list(one.writes())


def test_unknown_keys_are_ignored():
    assert offered(colour="red").failure is None


@pytest.mark.parametrize("size", [0, 65537])
def test_a_length_that_cannot_be(size):
    _, other = ends()
    other.feed(size.to_bytes(4, "big"))
    assert other.failure == f"a message of {size} bytes, legal are 1 to 65536"


def test_the_end_of_the_connection_before_its_time():
    _, other = ends()
    other.feed(b"\0\0")
    other.closed()
    assert "the length of an offer was awaited: 2 of 4 bytes" in other.failure


def test_what_comes_after_all_means_nothing():
    """12.7: a bye, or the end of the connection, does not affect the queue pair."""
    one, other = ends()
    carry(one, other)
    one.proceed()
    other.proceed()
    carry(one, other)
    other.feed(message(type="bye", profile="mrc-emu/1"))
    other.closed()
    assert other.is_done
    assert other.failure is None
    assert not list(other.writes())


def test_an_owner_who_cannot_go_on_says_so_to_the_peer():
    one, other = ends()
    carry(one, other)
    other.refuse("no way to fd00::1")
    carry(one, other)
    assert one.is_held
    one.proceed()
    assert one.failure == "the peer refuses: no way to fd00::1"
    other.refuse("twice")
    assert other.failure == "no way to fd00::1"


@pytest.mark.parametrize("name", READINGS)
def test_each_reading_that_a_peer_would_notice_is_refused_by_name(name):
    """12.1, 12.18: mismatches are told before anything is sent, not by a hang."""
    others = {
        "bth_bit_order": "se_m", "ev_split": "label_low", "eeth_op_shift": 4, "icrc": False,
        "port_mask_base": 1, "ack_msn": "last",
    }  # fmt: skip
    one, other = ends(A, replace(B, readings={**READINGS, name: others[name]}))
    carry(one, other)
    assert other.failure.startswith(f"readings.{name} is ")
    assert one.failure == f"the peer refuses: {other.failure}"
    assert [*one.events()] == [*other.events()] == []


def test_who_does_not_say_how_he_reads_reads_as_the_profile_does():
    assert offered(readings=None).is_held
    assert offered(readings={"colour": 1}).is_held


def test_srv6_needs_to_know_where_each_port_is():
    a = replace(A, ev_format="srv6")
    one, other = ends(a, replace(B, ev_format="srv6"))
    carry(one, other)
    assert other.failure == "srv6_rows has none for plane 1, and srv6 needs it"
    rows = (Row(1, 0), Row(2, 3))
    one, other = ends(replace(a, srv6_rows=rows), replace(B, ev_format="srv6", srv6_rows=rows))
    carry(one, other)
    (settled,) = other.events()
    assert settled.theirs.srv6_rows == rows


def test_the_longest_message_is_taken_in_one_piece():
    (said,) = said_by(ends()[0])
    said["padding"] = ""
    said["padding"] = "x" * (MAX_MESSAGE - len(json.dumps(said)))
    _, other = ends()
    data = message(**said)
    assert len(data) == 4 + MAX_MESSAGE
    other.feed(data)
    assert other.is_held
    other.feed(bytes(MAX_MESSAGE + 1))
    assert other.failure == "65537 bytes came while our own side was not ready"


def test_over_tcp():
    """As the profile has it: a stream of a kernel's, read as it comes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        calling = socket.create_connection(listener.getsockname(), timeout=5)
        called, _ = listener.accept()
        called.settimeout(5)
    with calling, called:
        one, other = ends()
        sides = {calling: one, called: other}
        while not (one.is_done and other.is_done):
            for stream, setup in sides.items():
                if setup.is_held:
                    setup.proceed()
                for data in setup.writes():
                    stream.sendall(data)
            readable, _, _ = select.select(list(sides), [], [], 0 if one.is_done else 5)
            for stream in readable:
                sides[stream].feed(stream.recv(100))
    assert [type(event) for event in one.events()] == [Settled, Ready]


@given(st.binary(max_size=200))
def test_any_bytes_end_in_words_or_in_waiting(data):
    _, other = ends()
    other.feed(len(data).to_bytes(4, "big") + data)
    assert other.failure or not other.is_over


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5),
                    lambda inner: st.lists(inner, max_size=3)
                    | st.dictionaries(st.text(max_size=5), inner, max_size=3)),
       st.sampled_from(["qpn", "addrs", "caps", "mrs", "srv6_rows", "protocol_versions",
                        "time_dilation", "ev_format", "udp_dport", "path_mtu", "type",
                        "readings"]))  # fmt: skip
def test_any_value_of_any_key_is_taken_or_refused(value, key):
    other = offered(**{key: value})
    assert other.failure or other.is_held or not other.is_over
