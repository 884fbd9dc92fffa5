"""Our responder against a kernel's: the same stimuli, the reactions side by side.

The stimuli were sent by hand to Linux 6.1 `rdma_rxe`, and its answers recorded. They lie beside
the checkout and are read from there. Every reaction of ours must be the same, but for those in
DEVIATIONS, each of which follows the text where rxe does not.
"""

import json
import random
from itertools import groupby
from pathlib import Path

import pytest

from tests.transports.roce.script import opened
from transports.roce.attributes import AddressHandle, QpState
from transports.roce.device import Device, DeviceConfig
from transports.roce.memory import HOST_ORDER
from transports.roce.regions import Access
from transports.roce.work import RecvWr, Sge
from wire.codec import DecodeError
from wire.roce.bth import Bth
from wire.roce.eths import Aeth
from wire.roce.opcodes import Family, Opcode
from wire.roce.packet import RocePacket, locate_ip

PROBES = Path(__file__).parents[3].parent / "shared" / "captures" / "rxe-6.1"
FILES = ("probes-rc-write.json", "probes-rc-read-atomic-send.json")
OURS, PEERS = bytes([10, 0, 0, 2]), bytes([10, 0, 0, 1])
L_KEY = 0xFFFF00
# What the tools' servers grant, and how large their buffers are.
ACCESS = {
    "ib_write_bw": Access.REMOTE_WRITE,
    "ib_read_bw": Access.REMOTE_READ,
    "ib_atomic_bw": Access.REMOTE_ATOMIC,
    "ib_send_bw": 0,
}

# Stimulus to (row of the conformance list, our reaction). rxe's is in the file.
DEVIATIONS = {
    "next psn after rnr": ("R14", []),
    "dup read partial from psn+1 va+1024 len 1476": (
        "R28",  # the text's responder begins a new sequence, rxe goes on with MIDDLE
        [
            ("READ_RESPONSE_FIRST", 0x103, 0x1F, 3, 1024),
            ("READ_RESPONSE_LAST", 0x104, 0x1F, 3, 452),
        ],
    ),
    "dup read full again after partial (va_org moved)": (
        "R29",
        [
            ("READ_RESPONSE_FIRST", 0x102, 0x1F, 3, 1024),
            ("READ_RESPONSE_MIDDLE", 0x103, None, None, 1024),
            ("READ_RESPONSE_LAST", 0x104, 0x1F, 3, 452),
        ],
    ),
    "write last len 0 more: last": ("R48", [("ACKNOWLEDGE", 0x101, 0x61, 0, 0)]),
    "last (2148 > 2048)": ("R51", [("ACKNOWLEDGE", 0x108, 0x61, 5, 0)]),
    "send_only_inv bogus rkey A=1": ("R54", [("ACKNOWLEDGE", 0x100, 0x62, 0, 0)]),
}  # fmt: skip


def sections():
    """Yield (settings of a server, its stimuli) for every section of both files."""
    for name in FILES:
        path = PROBES / name
        if not path.exists():
            continue
        settings = None
        for is_head, group in groupby(
            json.loads(path.read_text()), lambda row: "section" in row
        ):
            rows = list(group)
            if is_head:
                settings = rows[-1]
            else:
                yield pytest.param(
                    settings, rows, id=f"{settings['section']} QP {settings['server_qpn']}"
                )


def server(settings, stimuli):
    """Return a device of ours that is set up as the probed server was."""
    tool = settings["section"].split()[0]
    words = settings["section"].split()
    size = int(words[words.index("-s") + 1]) if "-s" in words else 4096
    device = Device(DeviceConfig((OURS,)), random.Random(1))
    pd = device.alloc_pd()
    access = ACCESS[tool] | Access.LOCAL_WRITE
    region = device.register(
        pd, settings["server_va"], 2 * size, access, l_key=L_KEY, r_key=settings["server_rkey"]
    )
    for row in stimuli:
        for answer in map(packet_in, row["responses"]):
            if answer.atomic_ack_eth is not None and not any(region.view[:8]):
                region.view[:8] = answer.atomic_ack_eth.original.to_bytes(8, HOST_ORDER)
        request = asked(row)
        if request.reth is not None and request.info.family is Family.READ:
            # What the server's memory held shows in what it answered.
            for answer in map(packet_in, row["responses"]):
                offset = (answer.bth.psn - request.bth.psn) * 1024
                start = request.reth.va - settings["server_va"] + offset
                region.view[start : start + len(answer.payload)] = answer.payload
    qp = device.create_qp(pd, qp_num=settings["server_qpn"])
    qp.modify(QpState.INIT, 0, pkey_index=0, port_num=1, qp_access_flags=ACCESS[tool])
    qp.modify(
        QpState.RTR, 0, ah=AddressHandle(OURS, PEERS), path_mtu=1024,
        dest_qp_num=settings["client_qpn"], rq_psn=settings["client_start_psn"],
        max_dest_rd_atomic=16, min_rnr_timer=12,
    )  # fmt: skip
    qp.modify(QpState.RTS, 0, sq_psn=0, timeout=14, retry_cnt=7, rnr_retry=7, max_rd_atomic=1)
    if tool == "ib_send_bw":
        for number in range(20):
            qp.post_recv(RecvWr(number, (Sge(settings["server_va"], size, L_KEY),)), 0)
    return device


def packet_in(text):
    return opened(bytes.fromhex(text))


def asked(row):
    """Return the packet of a stimulus, whether its ICRC is right or not."""
    raw = bytes.fromhex(row["stimulus"])
    at = locate_ip(raw)
    try:
        return RocePacket.unpack(raw[at.bth_offset : at.icrc_offset])
    except DecodeError:
        return RocePacket.make(Bth(Opcode.RC_ACKNOWLEDGE, 0, 0), Aeth.ack(0))


def essence(packet):
    """Return what two responders must agree on, and the payload."""
    aeth = packet.aeth
    return (
        packet.name,
        packet.bth.psn,
        aeth and aeth.syndrome,
        aeth and aeth.msn,
        packet.atomic_ack_eth.original if packet.atomic_ack_eth else len(packet.payload),
        bytes(packet.payload),
    )


def without_payload(essences):
    return [one[:-1] for one in essences]


@pytest.mark.skipif(
    not PROBES.exists(), reason="the recorded probes are not beside the checkout"
)
@pytest.mark.parametrize(("settings", "stimuli"), list(sections()))
def test_we_answer_as_the_kernel_does_or_as_the_text_says(settings, stimuli):
    device = server(settings, stimuli)
    for row in stimuli:
        device.receive(bytes.fromhex(row["stimulus"]), 0)
        got = [opened(outgoing.packet) for outgoing in device.transmit(0)]
        ours = [essence(packet) for packet in got]
        if row["name"] in DEVIATIONS:
            row_id, wanted = DEVIATIONS[row["name"]]
            assert without_payload(ours) == wanted, (row["name"], row_id)
        else:
            theirs = [packet_in(text) for text in row["responses"]]
            assert ours == [essence(packet) for packet in theirs], row["name"]
        assert {packet.bth.dest_qp for packet in got} <= {settings["client_qpn"]}
        assert all(
            packet.info.family in {Family.ACK, Family.READ, Family.ATOMIC} for packet in got
        )


@pytest.mark.skipif(
    not PROBES.exists(), reason="the recorded probes are not beside the checkout"
)
def test_every_stimulus_of_the_files_is_replayed():
    recorded = [
        row
        for name in FILES
        for row in json.loads((PROBES / name).read_text())
        if "stimulus" in row
    ]
    assert [row for param in sections() for row in param.values[1]] == recorded
    assert len(recorded) == 104


@pytest.mark.skipif(
    not PROBES.exists(), reason="the recorded probes are not beside the checkout"
)
def test_every_deviation_is_still_one():
    names = {}
    for param in sections():
        for row in param.values[1]:
            theirs = [essence(packet_in(text)) for text in row["responses"]]
            names[row["name"]] = without_payload(theirs)
    for name, (row_id, ours) in DEVIATIONS.items():
        assert names[name] != ours, row_id
