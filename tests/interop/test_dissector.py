"""P14: our dissector, by tshark, over frames whose fields are known, over labs, over others'.

Field by field it must read what our codecs read, and the ICRC of frames that rxe sent is right.
"""

import struct
import subprocess
from pathlib import Path

import pytest

from netem.analysis.reader import read_capture
from netem.wireshark.install import SCRIPT
from tests.interop.dissector import LUA, Dissector, no_lua_error
from tests.labs.commands import captured, fabriclab, inside, is_corrupted, is_trimmed
from tests.netem.conftest import roce, udp_frame
from wire.codec import DecodeError
from wire.mrc.bth import MrcBth
from wire.mrc.endpoint import Eeth, EndpointOp, Erth
from wire.mrc.eths import Meth, Tseth
from wire.mrc.opcodes import ENDPOINT_QP, WRITES, MrcOpcode
from wire.mrc.packet import MrcPacket, TrimmedWrite
from wire.mrc.reliability import NackReason, Neth, PathVerdict, Peth, Seth
from wire.roce.bth import Bth
from wire.roce.eths import Aeth, ImmDt, Reth
from wire.roce.icrc import ICRC, icrc
from wire.roce.opcodes import Opcode
from wire.roce.packet import RocePacket, cnp, locate

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.needs("tshark")]

RXE = Path(__file__).parents[3] / "shared" / "captures" / "rxe-6.1"
PSNS = 1 << 24
BAD, GOOD = "0", "1"
RC_SEND = Bth(Opcode.RC_SEND_ONLY, 0x22, 7)
EV = 0x014002AB

WRITE = [Meth(2, 8), Reth(0x100000003000, 0x11223344, 0x1001)]
PACKETS = {
    "write": MrcPacket.make(MrcBth(0xCA, 0x222, 0xABCD), *WRITE, payload=bytes(range(16))),
    "write with all": MrcPacket.make(
        MrcBth(0xC9, 0x222, 0xABCE, ack_req=True, rtx=True, solicited=True),
        *WRITE, Tseth(0x1234), ImmDt(0xCAFEF00D), payload=b"\x5a",
    ),
    "sack": MrcPacket.make(
        MrcBth(MrcOpcode.SACK, 0x111, 0xABC8),
        Seth(0xABC8, 5, 1, 0x16, EV, 0x222, 0x111, PathVerdict.SKIP_ONCE, mpr=8,
             tx_timestamp=0x1234, ooo_count=3, rcvd_bytes=49, rcv_cwnd_pen=5),
    ),
    "sack over the end of PSNs": MrcPacket.make(
        MrcBth(MrcOpcode.SACK, 0x111, PSNS - 3),
        Seth(PSNS - 3, 4, -1, 1 << 63 | 1 << 5, EV, 0x222, 0x111, restore_cwnd=True),
    ),
    "answer to a probe": MrcPacket.make(
        MrcBth(MrcOpcode.SACK, 0x111, 7), Seth(7, 0x42, 1, 0, EV, probe=True)
    ),
    "nack": MrcPacket.make(
        MrcBth(MrcOpcode.NACK, 0x111, 0xABCD),
        Neth(0xABCD, NackReason.TRIMMED, EV, 0x222, 0x111, 0x1234),
    ),
    "probe": MrcPacket.make(
        MrcBth(MrcOpcode.PROBE, 0x222, 0), Peth(0x42, 0x111, 0x222, 0x2000)
    ),
    "request": MrcPacket.make(
        MrcBth(MrcOpcode.ENDPOINT_REQUEST, ENDPOINT_QP, 8),
        Erth(EndpointOp.PORT_STATUS_UPDATE, 0xF7, 0x2002),
    ),
    "response": MrcPacket.make(
        MrcBth(MrcOpcode.ENDPOINT_RESPONSE, ENDPOINT_QP, 7), Eeth(EndpointOp.EV_PROBE, 0x2001)
    ),
    "acknowledge": MrcPacket.make(MrcBth(MrcOpcode.ACKNOWLEDGE, 0x111, 0xABCD), Aeth.ack(7)),
}  # fmt: skip


def whole(packet, family=6):
    """Return the frame of an MRC packet, ICRC and all."""
    frame = udp_frame("h0", "h1", packet.pack() + bytes(4), family=family)
    ICRC.pack_into(frame, len(frame) - 4, icrc(memoryview(frame)[14:-4]))
    return bytes(frame)


def pcap(path, *frames):
    """Write frames, or pairs of what was captured and how long it was, to a file."""
    out = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)]
    for frame in frames:
        part, length = frame if isinstance(frame, tuple) else (frame, len(frame))
        out.append(struct.pack("<IIII", 0, 0, len(part), length) + part)
    path.write_bytes(b"".join(out))
    return path


@pytest.fixture(scope="session")
def dissector(tmp_path_factory):
    return Dissector(tmp_path_factory.mktemp("dissector"))


@pytest.fixture(scope="session")
def read(dissector):
    """Return one dict a packet; a field that occurs several times is a list with commas."""
    return dissector.read


def number(text):
    return int(text, 0)


def sack_fields(seth):
    psns = [
        (seth.cack_psn + seth.sack_offset + bit) % PSNS
        for bit in range(64)
        if seth.sack_bitmap >> bit & 1
    ]
    wanted = {
        "mrc.sack.cack_psn": seth.cack_psn,
        "mrc.sack.verdict": seth.verdict,
        "mrc.sack.base": (seth.cack_psn + seth.sack_offset) % PSNS,
        "mrc.sack.mpr.psns": seth.mpr * 128,
        "mrc.sack.ooo": seth.ooo_count,
        "mrc.sack.restore": seth.restore_cwnd,
        "mrc.sack.penalty": seth.rcv_cwnd_pen,
        "mrc.sack.rcvd_bytes": seth.rcvd_bytes * 256,
        "mrc.sack.bitmap": seth.sack_bitmap,
        "mrc.sack.psn": psns,
        "mrc.entropy": seth.entropy,
        "mrc.entropy.label": seth.entropy >> 16,
        "mrc.entropy.port": seth.entropy & 0xFFFF,
        "mrc.timestamp": seth.tx_timestamp,
        "mrc.timestamp.ns": seth.tx_timestamp * 128,
        "mrc.spdcid": seth.spdcid,
        "mrc.dpdcid": seth.dpdcid,
    }
    if seth.probe:
        return wanted | {"mrc.sack.probe_id": seth.probe_id}
    return wanted | {"mrc.sack.ack_psn": (seth.cack_psn + seth.ack_psn_offset) % PSNS}


# Of each header: which field of the dissector has which of ours
SAME = {
    "meth": {"rqmsn": "rqmsn", "msn": "msn"},
    "tseth": {"timestamp": "tx_timestamp"},
    "reth": {"va": "va", "r_key": "r_key", "dmalen": "dma_length"},
    "immdt": {"immdt": "imm"},
    "aeth": {"aeth.msn": "msn"},
    "neth": {"nack.psn": "nack_psn", "nack.reason": "reason", "entropy": "entropy",
             "timestamp": "tx_timestamp"},
    "peth": {"probe.id": "probe_id", "spdcid": "spdcid", "dpdcid": "dpdcid"},
    "erth": {"endpoint.op": "op", "endpoint.ports": "port_status_mask"},
    "eeth": {"endpoint.op": "op", "timestamp": "tx_timestamp"},
}  # fmt: skip
OF_BTH = {
    "opcode": "opcode", "psn": "psn", "destqp": "dest_qp", "rtx": "rtx", "ts": "ts",
    "ackreq": "ack_req", "se": "solicited", "padcnt": "pad_count", "p_key": "p_key",
}  # fmt: skip


def fields_of(packet):
    """Return what the dissector must find in a packet, by the names of its fields."""
    wanted = {f"mrc.{name}": getattr(packet.bth, ours) for name, ours in OF_BTH.items()}
    for header, names in SAME.items():
        if (found := getattr(packet, header)) is not None:
            wanted |= {f"mrc.{name}": getattr(found, ours) for name, ours in names.items()}
    if packet.meth is not None:
        wanted["mrc.payload_length"] = len(packet.payload)
    return wanted if packet.seth is None else wanted | sack_fields(packet.seth)


def check(row, wanted):
    for name, value in wanted.items():
        if isinstance(value, list):
            assert [number(text) for text in row[name].split(",") if text] == value, name
        else:
            assert row[name], name
            assert number(row[name].replace("True", "1").replace("False", "0")) == value, name


@pytest.mark.parametrize("family", [4, 6])
def test_every_header_reads_as_our_codecs_read_it(family, tmp_path, read):
    wanted = [fields_of(packet) for packet in PACKETS.values()]
    names = sorted({name for fields in wanted for name in fields})
    file = pcap(tmp_path / "f.pcap", *(whole(packet, family) for packet in PACKETS.values()))
    rows = read(file, [*names, "fabriclab.icrc.status", "_ws.malformed", "mrc.short"])
    for row, fields in zip(rows, wanted, strict=True):
        check(row, fields)
        assert row["fabriclab.icrc.status"] == GOOD
        assert not row["_ws.malformed"]
        assert not row["mrc.short"]


def test_what_a_sack_does_not_tell_of_is_missing(tmp_path, read):
    sack = Seth(100, 0, 1, 0b1010_0001)  # 101, 106 and 108 are there
    frame = whole(MrcPacket.make(MrcBth(MrcOpcode.SACK, 1, 100), sack))
    (row,) = read(pcap(tmp_path / "f.pcap", frame), ["mrc.sack.missing", "mrc.sack.received"])
    assert row["mrc.sack.missing"] == "102,103,104,105,107"
    assert row["mrc.sack.received"] == "101, 106, 108"


@pytest.mark.parametrize("family", [4, 6])
def test_an_icrc_is_verified_and_a_wrong_one_is_an_error(family, tmp_path, read):
    packet = RocePacket.make(RC_SEND, payload=bytes(40))
    right = roce("h0", "h1", packet, family=family)
    wrong = bytearray(right)
    wrong[-20] ^= 4
    fields = ["fabriclab.icrc.status", "fabriclab.icrc.bad", "infiniband.bth.psn"]
    file = pcap(tmp_path / "f.pcap", right, bytes(wrong))
    good, bad = read(file, [*fields, "fabriclab.icrc.expected", "_ws.expert.severity"])
    assert (good["fabriclab.icrc.status"], good["fabriclab.icrc.bad"]) == (GOOD, "")
    assert bad["fabriclab.icrc.status"] == BAD
    assert number(bad["fabriclab.icrc.expected"]) == icrc(memoryview(wrong)[14:-4])
    assert str(0x800000) in bad["_ws.expert.severity"].split(",")
    assert good["infiniband.bth.psn"] == bad["infiniband.bth.psn"] == "7"


def test_a_trimmed_packet_says_what_is_gone_and_has_no_icrc(tmp_path, read):
    write = whole(PACKETS["write with all"])
    middle = RocePacket.make(Bth(Opcode.RC_WRITE_MIDDLE, 0x22, 7), payload=bytes(1024))
    roce_frame = roce("h0", "h1", middle)
    file = pcap(tmp_path / "f.pcap", write[:82], roce_frame[:128])
    fields = ["fabriclab.trimmed.cut", "fabriclab.trimmed.original", "fabriclab.icrc"]
    mrc, rc = read(file, [*fields, "mrc.msn", "mrc.timestamp", "mrc.va", "infiniband.bth.psn"])
    assert [row["fabriclab.icrc"] for row in (mrc, rc)] == ["", ""]
    assert int(mrc["fabriclab.trimmed.cut"]) == len(write) - 82
    assert int(mrc["fabriclab.trimmed.original"]) == len(write) - 62
    assert (mrc["mrc.msn"], mrc["mrc.timestamp"], mrc["mrc.va"]) == ("8", "4660", "")
    assert int(rc["fabriclab.trimmed.cut"]) == len(roce_frame) - 128
    assert rc["infiniband.bth.psn"] == "7"


def test_what_the_capture_cut_is_not_trimmed(tmp_path, read):
    """P11: a snap length leaves bytes out as well, and then nobody knows the ICRC."""
    frame = whole(PACKETS["write"])
    (row,) = read(
        pcap(tmp_path / "f.pcap", (frame[:90], len(frame))),
        ["fabriclab.trimmed", "fabriclab.icrc", "mrc.psn", "mrc.short"],
    )
    assert row == {"fabriclab.trimmed": "", "fabriclab.icrc": "", "mrc.psn": "43981",
                   "mrc.short": ""}  # fmt: skip


def test_a_cnp_names_the_queue_pair_that_is_to_slow_down(tmp_path, read):
    file = pcap(tmp_path / "f.pcap", roce("h0", "h1", cnp(0x123456)))
    (row,) = read(file, ["fabriclab.cnp.destqp", "fabriclab.bth.becn", "fabriclab.icrc.status"])
    assert number(row["fabriclab.cnp.destqp"]) == 0x123456
    assert row["fabriclab.bth.becn"] in {"1", "True"}
    assert row["fabriclab.icrc.status"] == GOOD


def test_a_packet_cut_anywhere_is_no_error_of_the_script(tmp_path, read):
    whole_frames = [whole(packet) for packet in PACKETS.values()]
    whole_frames.append(roce("h0", "h1", RocePacket.make(RC_SEND, payload=bytes(40))))
    frames = [frame[:keep] for frame in whole_frames for keep in range(43, 120, 11)]
    assert len(read(pcap(tmp_path / "f.pcap", *frames), ["frame.number"])) == len(frames)


def test_an_error_of_a_script_is_noticed(tmp_path, dissector):
    script = tmp_path / "broken.lua"
    script.write_text(
        'local broken = Proto("broken", "Broken")\n'
        'function broken.dissector() error("on purpose") end\n'
        'DissectorTable.get("udp.port"):add(4791, broken)\n'
    )
    file = pcap(tmp_path / "f.pcap", whole(PACKETS["sack"]))
    for how in (("-V",), ("-T", "fields", "-e", "_ws.expert.message")):
        with pytest.raises(AssertionError, match="on purpose"):
            dissector.show(file, "-X", f"lua_script:{script}", how=how)


@pytest.mark.parametrize("passes", [(), ("-2",)], ids=["one pass", "two passes"])
@pytest.mark.parametrize("installed", [False, True], ids=["-X", "installed"])
@pytest.mark.parametrize("family", [4, 6])
def test_roce_goes_once_to_the_built_in_dissector_and_once_to_ours(
    family, installed, passes, tmp_path, dissector
):
    packet = RocePacket.make(RC_SEND, payload=bytes(40))
    file = pcap(tmp_path / "f.pcap", *[roce("h0", "h1", packet, family=family)] * 3)
    named = () if installed else LUA
    how = ("-T", "fields", "-e", "frame.protocols", "-e", "infiniband.bth.psn")
    how += ("-e", "fabriclab.icrc.status")
    lines = dissector.show(file, *named, *passes, installed=installed, how=how).splitlines()
    assert len(lines) == 3
    for line in lines:
        protocols, psn, status = line.split("\t")
        protocols = protocols.split(":")
        assert (protocols.count("infiniband"), protocols.count("fabriclab")) == (1, 1)
        assert (psn, status) == ("7", GOOD)


LABS = ["incast-trim", "srv6-path", "rc-over-overlay", "mrc-two-plane",
        "rc-verbs", "two-hosts-lossy"]  # fmt: skip
MOST = 600


@pytest.mark.parametrize("lab", LABS)
def test_a_labs_capture_reads_the_same_and_its_icrcs_are_right(lab, tmp_path, read):
    ran = fabriclab("sim", lab, "--out", tmp_path / "run", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    ours = captured(tmp_path / "run")[:MOST]
    names = ["fabriclab.icrc.status", "fabriclab.trimmed", "mrc.opcode", "mrc.psn"]
    names += ["mrc.sack.cack_psn", "mrc.sack.psn", "mrc.ev", "mrc.entropy"]
    rows = read(tmp_path / "run" / "lab.pcapng", names, "-c", str(MOST))
    judged = sum(_judged(frame, row) for frame, row in zip(ours, rows, strict=True))
    assert judged > 0.9 * len(ours)


def _judged(frame, row):
    if is_corrupted(frame):
        return False
    content = inside(bytes(frame.frame))
    try:
        at = locate(content)
    except DecodeError:  # trimmed, or not RoCE: WireGuard's own
        if not is_trimmed(frame):
            assert row["fabriclab.icrc.status"] in {GOOD, ""}  # tshark looks into tunnels
            return bool(row["fabriclab.icrc.status"])
        assert row["fabriclab.trimmed"] in {"1", "True"}
        assert not row["fabriclab.icrc.status"]
        if row["mrc.opcode"]:
            trimmed = TrimmedWrite.unpack(content[62:])
            assert number(row["mrc.psn"]) == trimmed.bth.psn
        return True
    assert row["fabriclab.icrc.status"] == GOOD, frame.number
    if content[at.bth_offset] >= min(WRITES):
        packet = MrcPacket.unpack(content[at.bth_offset : at.icrc_offset])
        wanted = fields_of(packet)
        check(row, {name: value for name, value in wanted.items() if name in row})
    return True


@pytest.mark.skipif(not RXE.is_dir(), reason="no folder `shared` beside the checkout")
def test_what_a_kernel_sent_has_right_icrcs(read):
    checked = 0
    for file in [*sorted(RXE.glob("*.pcap"))[::8], RXE / "ib_write_lat-tcp.pcap"]:
        rows = read(file, ["infiniband.bth.opcode", "fabriclab.icrc.status"], "-c", "300")
        states = {row["fabriclab.icrc.status"] for row in rows if row["infiniband.bth.opcode"]}
        assert states <= {GOOD}, file.name
        checked += len(rows)
        with file.open("rb") as stream:
            assert len(rows) == min(300, sum(1 for _ in read_capture(stream)))
    assert checked > 100


def test_installed_it_is_found_by_tshark_and_removed_it_is_gone(tmp_path):
    file = pcap(tmp_path / "f.pcap", whole(PACKETS["sack"]))
    own = Dissector(tmp_path)

    def protocol():
        how = ("-T", "fields", "-e", "_ws.col.Protocol")
        return own.show(file, installed=True, how=how).strip()

    assert protocol() == "MRC"
    assert "installed" in own.verb("--install")
    assert "removed" in own.verb("--remove")
    assert protocol() == "RRoCE"
    assert "there was none" in own.verb("--remove")


def test_every_field_is_documented():
    command = ["tshark", "-G", "fields", *LUA]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    no_lua_error(done.stderr)
    listed = done.stdout
    text = SCRIPT.with_name("README.md").read_text()
    rows = [line.split("\t") for line in listed.splitlines() if line.startswith("F\t")]
    ours = [row[2] for row in rows if row[4] in {"mrc", "fabriclab"}]
    assert len(ours) > 60
    headers = {"meth", "tseth", "reth", "aeth", "sack", "nack", "probe", "request", "response"}
    for name in set(ours) - {f"mrc.{header}" for header in headers}:
        short = name.partition(".")[2]
        assert f".{short}`" in text or f".{short} " in text, name
