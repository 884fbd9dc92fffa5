"""Messages of the communication manager, against those of a kernel and of real adapters."""

from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.roce.cm_evidence import (
    CLIENT,
    ENDACE,
    SERVER,
    all_mads,
    hardware_mads,
    mads_of,
)
from tests.wire.roce.evidence import needs_captures
from tests.wire.strategies import CM_MESSAGES, moderate, uint
from wire.codec import DecodeError, FieldError, TruncatedError
from wire.roce.cm.codes import RejectReason, TransportService
from wire.roce.cm.connection import Drep, Dreq, Path, Rej, Rep, Req, Rtu
from wire.roce.cm.ip_service import IpHeader, PortSpace, service_id
from wire.roce.cm.message import MESSAGES, CmMad
from wire.roce.cm.sidr import SidrRep, SidrReq
from wire.roce.gid import gid_of, guid_of, ip_of
from wire.roce.mad import CLASS_PORT_INFO, Mad

needs_hardware = pytest.mark.skipif(
    not ENDACE.exists(), reason="no captures beside the checkout"
)
CLIENT_GUID, SERVER_GUID = 0x505400FFFE000001, 0x505400FFFE000002


@needs_captures
def test_every_mad_of_the_kernel_decodes_and_encodes_to_the_same_bytes():
    kinds = Counter()
    for seen in all_mads():
        value = CmMad.unpack(seen.mad)
        assert value.pack() == seen.mad
        kinds[type(value.message).__name__] += 1
    assert kinds == {
        "Req": 13, "Rep": 12, "Rtu": 12, "Rej": 1, "Dreq": 13, "Drep": 13, "SidrReq": 1,
        "SidrRep": 1,
    }  # fmt: skip


@needs_hardware
def test_every_mad_of_real_adapters_decodes_and_encodes_to_the_same_bytes():
    found = [CmMad.unpack(mad) for mad in hardware_mads()]
    assert [value.pack() for value in found] == hardware_mads()
    assert [type(value.message) for value in found] == [Req, Rep, Rtu] * 3
    req = found[0].message
    assert isinstance(req, Req)
    assert req.service_id == 0x1000000000000404
    assert (req.local_qpn, req.path_mtu, req.srq) == (0x870408, 4, True)
    assert req.primary == Path(
        4, 1, bytes.fromhex("fe800000000000000002c9020024f636"),
        bytes.fromhex("fe800000000000000002c9020020b4dd"), packet_rate=3, subnet_local=True,
        local_ack_timeout=19,
    )  # fmt: skip


@needs_captures
def test_a_req_of_rping_says_what_its_flow_shows():
    """The PSN it names is that of the server's first request, and the label is the hash."""
    req = CmMad.unpack(mads_of("rping-ipv4")[0].mad)
    port = 0xE268
    assert req == CmMad(
        0x2DDCE7F60,
        Req(
            0x607FCEDD, service_id(PortSpace.TCP, 7174), CLIENT_GUID, 0x16, 0xFC1110,
            responder_resources=1, initiator_depth=1,
            primary=Path(
                0xFFFF, 0xFFFF, gid_of(CLIENT), gid_of(SERVER), (port * 31 + 7174) % (1 << 20),
                hop_limit=64, local_ack_timeout=19,
            ),
            private_data=req.message.private_data,
        ),
    )  # fmt: skip
    assert IpHeader.unpack_from(req.message.private_data) == IpHeader(port, CLIENT, SERVER)
    assert not any(req.message.private_data[36:])


@needs_captures
def test_the_other_messages_of_the_kernel_say_what_they_are_known_for():
    _, rep, rtu, dreq, drep = (CmMad.unpack(seen.mad) for seen in mads_of("rping-ipv4"))
    client, server = 0x607FCEDD, 0x6EDC9E35
    assert rep.message == Rep(
        server, client, 0x16, 0x646FB2, 1, 1, rnr_retry_count=7, local_ca_guid=SERVER_GUID
    )
    assert rtu.message == Rtu(client, server)
    assert dreq.message == Dreq(server, client, remote_qpn=0x16)
    assert drep.message == Drep(client, server)
    _, rej = (CmMad.unpack(seen.mad).message for seen in mads_of("cm-reject-no-listener"))
    assert rej == Rej(0, 0x627FCEDD, 0, RejectReason.INVALID_SERVICE_ID)
    ask, answer = (CmMad.unpack(seen.mad).message for seen in mads_of("udaddy-sidr"))
    assert isinstance(ask, SidrReq)
    assert ask.service_id == service_id(PortSpace.UDP, 7174)
    assert answer == SidrRep(ask.request_id, 0, 0x18, ask.service_id, 0x01234567)


@pytest.mark.parametrize(
    ("raw", "header"),
    [
        ("0040 e268" + "00" * 12 + "0a000001" + "00" * 12 + "0a000002",
         IpHeader(0xE268, CLIENT, SERVER)),
        ("0060 b93c fd00" + "00" * 13 + "01 fd00" + "00" * 13 + "02",
         IpHeader(0xB93C, b"\xfd" + bytes(14) + b"\1", b"\xfd" + bytes(14) + b"\2")),
    ],
    ids=["IPv4", "IPv6"],
)  # fmt: skip
def test_the_header_of_the_ip_service(raw, header):
    """Annex A11; the bytes are those of two captures of rping."""
    raw = bytes.fromhex(raw)
    assert IpHeader.unpack_from(raw) == header
    buf = bytearray(36)
    header.pack_into(buf)
    assert buf == raw


@pytest.mark.parametrize(
    ("first", "problem"),
    [
        ("10 40", "IP CM.Version is 0x10, legal is 0x0"),
        ("01 40", "IP CM.Version is 0x1, legal is 0x0"),
        ("00 50", "IP CM.IP Version is 0x5, legal is 0x4 or 0x6"),
    ],
)
def test_another_version_of_the_ip_service_is_refused_by_name(first, problem):
    with pytest.raises(FieldError) as caught:
        IpHeader.unpack_from(bytes.fromhex(first) + bytes(34))
    assert str(caught.value) == problem


def test_an_ip_header_has_addresses_of_one_family():
    with pytest.raises(ValueError, match="destination is 16 bytes, which should be 4"):
        IpHeader(1, bytes(4), bytes(16)).pack_into(bytearray(36))


messages = st.one_of(*CM_MESSAGES.values())


@moderate
@given(st.builds(CmMad, uint(64), messages, uint(32), uint(16)))
def test_a_mad_survives_the_round_trip(value):
    raw = value.pack()
    assert len(raw) == value.size == 256
    again = CmMad.unpack(raw)
    assert type(again.message) is type(value.message)
    assert again == value


@moderate
@given(st.binary(max_size=300))
def test_any_bytes_are_a_mad_or_a_decode_error(raw):
    with suppress(DecodeError):
        CmMad.unpack(raw)


@moderate
@given(st.sampled_from(sorted(MESSAGES)), st.binary(min_size=232, max_size=232))
def test_any_body_is_a_message_or_a_decode_error(attribute, body):
    head = bytearray(24)
    Mad(7, 2, 3, 0, 0, 1, attribute).pack_into(head)
    with suppress(DecodeError):
        CmMad.unpack(bytes(head) + body)


@pytest.mark.parametrize(
    ("offset", "value", "problem"),
    [
        (0, 2, "MAD.BaseVersion is 0x2, legal is 0x1"),
        (1, 3, "MAD.MgmtClass is 0x3, legal is 0x7"),
        (2, 1, "MAD.ClassVersion is 0x1, legal is 0x2"),
        (3, 0x81, "MAD.Method is 0x81, legal is 0x3"),
        (17, 0x1B, "MAD.AttributeID is 0x1b, legal is 0x10 to 0x1a"),
    ],
)
def test_a_header_that_is_not_the_managers_is_refused_by_name(offset, value, problem):
    mad = bytearray(CmMad(1, Rtu(2, 3)).pack())
    mad[offset] = value
    with pytest.raises(FieldError) as caught:
        CmMad.unpack(mad)
    assert str(caught.value) == problem


def test_a_mad_has_all_its_bytes():
    with pytest.raises(TruncatedError, match="MAD needs 256 bytes, 255 are there"):
        CmMad.unpack(CmMad(1, Rtu(2, 3)).pack()[:255])


def test_information_longer_than_its_place_is_refused():
    rej = Rej(1, 2, 0, RejectReason.INVALID_PRIMARY_GID, info_length=73)
    with pytest.raises(FieldError, match="Additional Info Length is 0x49, legal is up to 0x48"):
        CmMad.unpack(CmMad(1, rej).pack())


@pytest.mark.parametrize(
    "value",
    [Dreq(1, 2, 0x1000000), Rtu(1, 2, bytes(10)), Rej(1, 2, 4, 0), Req(1 << 32, 0, 0, 2, 0)],
)
def test_a_field_that_does_not_fit_is_the_callers_mistake(value):
    with pytest.raises(ValueError, match=r"does not fit|should be"):
        CmMad(1, value).pack()


def test_gids_and_guids():
    """RFC 4291, section 2.5.5.2 and appendix A; the GUID is that of node 1 in the captures."""
    assert gid_of(CLIENT).hex() == "00000000000000000000ffff0a000001"
    assert ip_of(gid_of(CLIENT)) == CLIENT
    six = bytes.fromhex("fd00" + "00" * 13 + "01")
    assert ip_of(gid_of(six)) == gid_of(six) == six
    assert guid_of(bytes.fromhex("525400000001")) == CLIENT_GUID


def test_class_port_info_has_the_size_of_the_text():
    assert CLASS_PORT_INFO.size == 72


def test_the_transport_service_is_two_bits_of_a_req():
    req = Req(1, 2, 3, 4, 5, transport_service_type=TransportService.UC)
    assert CmMad(1, req).pack()[24 + 43] == 20 << 3 | 1 << 1
