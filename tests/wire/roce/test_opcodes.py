"""The opcode table against the text's own table, row by row, and against itself."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from wire.roce import eths
from wire.roce.opcodes import OPCODES, Family, Opcode, Payload, Position, Service

SPEC = Path(__file__).parents[3] / ".." / "shared" / "specs" / "rocev2.md"

PAYLOADS = {
    "= PMTU": Payload.PMTU,
    "1..PMTU": Payload.SOME,
    "0..PMTU": Payload.ANY,
    "none": Payload.NONE,
    "8": Payload.EIGHT,
}
HEADERS = {
    "RETH": eths.Reth,
    "AETH": eths.Aeth,
    "AtomicETH": eths.AtomicEth,
    "AtomicAckETH": eths.AtomicAckEth,
    "ImmDt": eths.ImmDt,
    "IETH": eths.Ieth,
    "FETH": eths.Feth,
    "DETH": eths.Deth,
}
SHORT = {"RDMA ": "", "Immediate": "Imm", "Invalidate": "Inv", " with ": " ", " ": "_"}
NAMES = {"CmpSwap": "CMP_SWAP", "FetchAdd": "FETCH_ADD"}


class Row(NamedTuple):
    """One opcode of the table of section 4."""

    service: str
    value: int
    name: str
    headers: tuple
    payload: Payload
    receive: str
    ends: str


def rows():
    """Read the table, where there is one beside the checkout."""
    if not SPEC.exists():
        return
    table = SPEC.read_text().partition("## 4. Opcodes")[2].partition("## 5.")[0]
    for line in re.findall(r"^\| [0-9A-F]{2} \|.*\|$", table, re.MULTILINE):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        rc, operation, uc, rd, xrc, ud, headers, payload, *rest = cells
        if operation.startswith("reserved"):
            continue
        words = re.sub(r" ?\(.*\)", "", headers).split(", ")
        kinds = tuple(HEADERS[word] for word in words if word in HEADERS)
        for service, value in (("RC", rc), ("UC", uc), ("RD", rd), ("XRC", xrc), ("UD", ud)):
            if value:
                common = (short(operation), kinds, PAYLOADS[payload], *rest)
                yield Row(service, int(value, 16), *common)


def short(operation):
    """Return our name for an operation of the text."""
    name = operation.partition(" (")[0]
    for long, instead in SHORT.items():
        name = name.replace(long, instead)
    return NAMES.get(name, name.upper())


ROWS = list(rows())
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.service} {row.name}")


def also(service, is_request):
    """What a service adds in front of the headers of the operation."""
    return {
        "RC": (),
        "UC": (),
        "UD": (eths.Deth,),
        "RD": (eths.Rdeth, eths.Deth) if is_request else (eths.Rdeth,),
        "XRC": (eths.Xrceth,) if is_request else (),
    }[service]


@each_row
def test_a_row_of_the_text_is_a_row_of_the_table(row):
    info = OPCODES[row.value]
    assert (info.service, info.name, info.payload) == (row.service, row.name, row.payload)
    assert info.opcode is Opcode[f"{row.service}_{row.name}"]
    is_response = row.name.startswith("READ_RESPONSE") or row.name.endswith("ACKNOWLEDGE")
    assert info.is_request is not is_response
    assert info.headers == also(row.service, info.is_request) + row.headers
    assert info.takes_receive is ("takes" in row.receive)
    assert info.completes_receive is ("completes" in row.receive)
    assert info.ends_message is (row.ends == "yes")
    assert info.has_imm is row.name.endswith("IMM")
    assert info.has_inv is row.name.endswith("INV")


@pytest.mark.skipif(not ROWS, reason="no specification beside the checkout")
def test_there_is_no_opcode_that_the_text_does_not_have():
    of_the_text = {row.value for row in ROWS} | {Opcode.CNP, Opcode.RD_RESYNC}
    assert set(OPCODES) == of_the_text


def test_opcode_0x15_is_reserved_for_all_services_but_rd():
    assert {0x15, 0x35, 0x75, 0xB5} & OPCODES.keys() == set()
    assert OPCODES[0x55].name == "RESYNC"


def test_the_cnp_is_no_part_of_a_message():
    info = OPCODES[0x81]
    assert (info.name, info.service, info.family) == ("CNP", Service.CNP, Family.CNP)
    assert info.position is Position.NONE
    assert not info.ends_message


@pytest.mark.parametrize("info", OPCODES.values(), ids=lambda info: info.opcode.name)
def test_the_table_agrees_with_itself(info):
    for position in (Position.FIRST, Position.MIDDLE, Position.LAST, Position.ONLY):
        named = f"_{position.name}" in info.name
        assert named <= (info.position is position)
    assert info.opcode >> 5 == {
        "RC": 0, "UC": 1, "RD": 2, "UD": 3, "CNP": 4, "XRC": 5,
    }[info.service]  # fmt: skip
    assert info.headers_size % 4 == 0
    assert info.family in {Family.ACK, Family.CNP} or info.position is not Position.NONE
