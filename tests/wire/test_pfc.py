"""PFC frames against the bytes of the specification, and against a dissector's eyes."""

import pytest

from wire.codec import FieldError, TruncatedError
from wire.pfc import Pfc, pfc_frame

MAC = bytes.fromhex("020000000001")
# As sent by hand over a veth and seen on the other side by a packet socket: priority 3.
PAUSE_3 = (
    "0180c2000001 020000000001 8808 0101 0008"
    "0000 0000 0000 ffff 0000 0000 0000 0000" + "00" * 26
)


def test_a_pause_frame_is_the_bytes_of_the_text():
    frame = pfc_frame(MAC, Pfc.of({3: 0xFFFF}))
    assert frame == bytes.fromhex(PAUSE_3)
    assert len(frame) == 60


def test_a_resume_names_its_class_with_time_zero():
    frame = pfc_frame(MAC, Pfc.of({7: 0}))
    assert frame[14:18].hex() == "01010080"
    assert not any(frame[18:])
    assert Pfc.unpack_from(frame, 14).quanta == {7: 0}


def test_times_of_classes_that_are_not_enabled_say_nothing():
    pfc = Pfc(0x09, (1, 2, 3, 4, 5, 6, 7, 8))
    assert pfc.quanta == {0: 1, 3: 4}


def test_the_pause_of_a_whole_port_is_not_pfc():
    frame = bytearray.fromhex("0001 ffff" + "00" * 42)
    with pytest.raises(FieldError, match=r"PFC\.Opcode is 0x1"):
        Pfc.unpack_from(frame)


def test_a_frame_that_ends_within_its_times_is_refused():
    with pytest.raises(TruncatedError):
        Pfc.unpack_from(bytes.fromhex(PAUSE_3)[:33], 14)
