"""The short ways through packets give what the definitions in `wire` give."""

import random

import pytest

from tests.transports.mrc.world import World, trimmed
from transports.mrc.arrivals import Write, cut_of, write_of
from transports.mrc.config import QpConfig
from transports.mrc.frames import Frame, PlainIpv6
from transports.mrc.refusals import RefusalReason
from wire.codec import DecodeError
from wire.ipv6 import IPV6, Ipv6
from wire.mrc import entropy
from wire.mrc.opcodes import WRITES
from wire.mrc.options import DEFAULTS, BthBitOrder, EvSplit, WireOptions
from wire.mrc.packet import MrcPacket
from wire.roce.icrc import ICRC, icrc
from wire.udp import UDP, Udp


def unpack(packet, options):
    return PlainIpv6(options).unpack(packet)


OTHER = WireOptions(bth_bit_order=BthBitOrder.SE_M, ev_split=EvSplit.LABEL_LOW)
MTU = 256


def packets(options=DEFAULTS, *, timestamps=True):
    """All kinds of packets that two devices say to each other."""
    world = World(
        options=[options, options], mtu=MTU, keep_sent=True,
        config=QpConfig(timestamps=timestamps),
    )  # fmt: skip
    world.fill()
    world.receives(9)
    for wr_id, length in enumerate((0, 1, MTU, MTU + 3, 4 * MTU + 2)):
        world.write(2 * wr_id, 2048 * wr_id, length, solicited=bool(wr_id & 1))
        world.write(2 * wr_id + 1, 2048 * wr_id, length, imm=wr_id + 1, solicited=True)
    world.links[0].trim_next.append(lambda out: True)
    world.links[0].drop_next.append(lambda out: out.psn == 12)
    world.run_until_done(10)
    return [out for end in world.ends for _, out in end.sent]


@pytest.mark.parametrize("options", [DEFAULTS, OTHER], ids=["default", "other"])
@pytest.mark.parametrize("timestamps", [True, False])
def test_what_is_sent_is_what_wire_says(options, timestamps):
    seen = set()
    for out in packets(options, timestamps=timestamps):
        raw = out.packet
        ip, udp = Ipv6.unpack_from(raw), Udp.unpack_from(raw, IPV6.size)
        assert len(raw) == IPV6.size + ip.payload_length == IPV6.size + udp.length
        assert ICRC.unpack(raw[-ICRC.size :])[0] == icrc(raw[: -ICRC.size])
        assert udp.checksum == 0
        assert entropy.join(ip.flow_label, udp.src_port, options.ev_split) == out.ev
        body = raw[IPV6.size + UDP.size : -ICRC.size]
        packet = MrcPacket.unpack(body, options)
        assert packet.pack(options) == body
        assert not packet.has_reserved_bits(body, options)
        assert packet.bth.opcode == out.opcode
        seen.add(out.opcode.name)
        if out.opcode in WRITES:
            assert packet.bth.ts is timestamps
            assert ip.traffic_class >> 2 == (8 if packet.bth.rtx else 4)
    assert {"WRITE_FIRST", "WRITE_MIDDLE", "WRITE_LAST", "WRITE_LAST_IMM", "WRITE_ONLY"} <= seen
    assert {"WRITE_ONLY_IMM", "SACK", "NACK", "ACKNOWLEDGE", "ENDPOINT_REQUEST"} <= seen


@pytest.mark.parametrize("options", [DEFAULTS, OTHER], ids=["default", "other"])
@pytest.mark.parametrize("timestamps", [True, False])
def test_a_write_is_taken_apart_as_wire_says(options, timestamps):
    for out in packets(options, timestamps=timestamps):
        if out.opcode in WRITES:
            frame = unpack(out.packet, options)
            check(frame, write_of(frame, options), options)


def check(frame, write, options):
    packet = MrcPacket.unpack(frame.body, options)
    bth, meth, tseth, reth, immdt = packet[:5]
    assert write[:3] == (bth.opcode, bth.psn, bth.ack_req)
    assert (write.rtx, write.solicited, write.mig_req) == (bth.rtx, bth.solicited, bth.mig_req)
    assert (write.rqmsn, write.msn) == meth
    assert write.stamp == (tseth.tx_timestamp if tseth else 0)
    assert (write.va, write.r_key, write.length) == reth
    assert write.imm == (immdt[0] if immdt else 0)
    assert write.payload == packet.payload
    assert write.size == frame.udp_length + 40
    assert write.has_reserved is packet.has_reserved_bits(frame.body, options)


def test_changed_and_cut_writes_are_taken_or_refused_as_wire_does():
    rng = random.Random(4)
    sent = [out.packet for out in packets() if out.opcode in WRITES]
    refused = taken = 0
    for _ in range(3000):
        raw = bytearray(rng.choice(sent))
        body = raw[48:-4][: rng.choice((None, rng.randrange(12, 60)))]
        for _ in range(rng.randrange(3)):
            body[rng.randrange(1, min(36, len(body)))] ^= 1 << rng.randrange(8)
        frame = Frame(b"", b"", 0, 4, 2, 4791, len(body) + 12, 0, False, memoryview(body), 0)
        write = write_of(frame, DEFAULTS)
        try:
            MrcPacket.unpack(body)
        except DecodeError:
            assert write is RefusalReason.MALFORMED
            refused += 1
        else:
            check(frame, write, DEFAULTS)
            taken += 1
    assert refused > 300 < taken


def test_what_is_cut_is_read_as_far_as_it_is_there():
    raw = next(out.packet for out in packets() if out.opcode in WRITES)
    whole = write_of(unpack(raw, DEFAULTS), DEFAULTS)
    for keep in range(len(raw)):
        for fix_length in (True, False):
            frame = (
                unpack(trimmed(raw, keep=keep, fix_length=fix_length), DEFAULTS)
                if (keep >= 40)
                else unpack(raw[:keep], DEFAULTS)
            )
            if keep < 48:
                assert frame is RefusalReason.IP_LENGTH
                continue
            assert frame.is_cut
            cut = cut_of(frame, DEFAULTS)
            if keep < 48 + 12:
                assert cut is RefusalReason.TRIMMED_OTHER
                continue
            assert cut.psn == whole.psn
            assert cut.stamp == (whole.stamp if keep >= 48 + 20 else 0)


def test_the_payload_is_a_view():
    raw = next(out.packet for out in packets() if out.opcode in WRITES and len(out.packet) > 99)
    write = write_of(unpack(raw, DEFAULTS), DEFAULTS)
    assert isinstance(write, Write)
    assert write.payload.obj is raw
