"""The words of the communication manager: MADs made from a line of a case, and read back.

Names are those of messages: REQ REP RTU REJ MRA DREQ DREP SIDR_REQ SIDR_REP. Each line is a
datagram of queue pair 1, so the fields of a packet (`ask`, `qkey`, ...) may be given, too. The
fields of messages, as far as the message has them:

    tid               transaction ID, counted from the case's own: +0
    id remote         communication IDs: ours, theirs, +1 for the suite's next one, or a number
    qpn psn           queue pair and starting PSN of the sender; of a DREQ, the receiver's
    port service      port in rdma_cm's space of TCP (SIDR: UDP), counted from that on which the
                      endpoint listens: +1; or a whole service ID
    resources depth   responder resources, initiator depth
    retries wait      most CM retries, response time of the sender (code)
    transport version gid=stranger destination=stranger      of a REQ that is wrong
    reason rejected   of a REJ; `info` is how long its further information is
    rejected wait     of an MRA: which message, how long (code)
    status            of a SIDR_REP; with qkey its qpn
    data="text"       private data of the application
"""

from collections.abc import Mapping
from struct import Struct
from typing import Any

from netem.conform.endpoint import LISTENS, Joined
from netem.conform.notation import Relative, Value, Words
from wire.codec import DecodeError
from wire.roce.cm.connection import Drep, Dreq, Mra, Path, Rej, Rep, Req, Rtu
from wire.roce.cm.ip_service import IP_HEADER, IpHeader, PortSpace, service_id
from wire.roce.cm.message import CmMad, Message
from wire.roce.cm.sidr import SidrRep, SidrReq
from wire.roce.gid import gid_of
from wire.roce.mad import GSI_Q_KEY

PORT = LISTENS
GUID = 0x020000FFFE000001  # of the suite's end
_NAMES: dict[str, type[Message]] = {
    "REQ": Req, "REP": Rep, "RTU": Rtu, "REJ": Rej, "MRA": Mra, "DREQ": Dreq, "DREP": Drep,
    "SIDR_REQ": SidrReq, "SIDR_REP": SidrRep,
}  # fmt: skip
_CALLED = {kind: name for name, kind in _NAMES.items()}
_DATAGRAM = {"qp": 1, "qkey": GSI_Q_KEY, "srcqp": 1}
# Field of a case to field of a message.
_FIELDS: dict[type[Message], dict[str, str]] = {
    Req: {
        "id": "local_comm_id", "qpn": "local_qpn", "psn": "starting_psn",
        "resources": "responder_resources", "depth": "initiator_depth",
        "retries": "max_cm_retries", "wait": "local_cm_response_timeout",
        "transport": "transport_service_type", "service": "service_id",
    },
    Rep: {
        "id": "local_comm_id", "remote": "remote_comm_id", "qpn": "local_qpn",
        "psn": "starting_psn", "resources": "responder_resources", "depth": "initiator_depth",
    },
    Rtu: {"id": "local_comm_id", "remote": "remote_comm_id"},
    Rej: {
        "id": "local_comm_id", "remote": "remote_comm_id", "reason": "reason",
        "rejected": "message_rejected", "info": "info_length",
    },
    Mra: {
        "id": "local_comm_id", "remote": "remote_comm_id", "rejected": "message_mraed",
        "wait": "service_timeout",
    },
    Dreq: {"id": "local_comm_id", "remote": "remote_comm_id", "qpn": "remote_qpn"},
    Drep: {"id": "local_comm_id", "remote": "remote_comm_id"},
    SidrReq: {"id": "request_id", "service": "service_id"},
    SidrRep: {"id": "request_id", "status": "status", "qpn": "qpn", "qkey": "q_key"},
}  # fmt: skip
_DATA_AT = {Req: IP_HEADER.size, SidrReq: IP_HEADER.size}
_TID = Struct("!Q")


def is_message(name: str) -> bool:
    """Say whether a line is about a message, and not about a packet of the connection."""
    return name in _NAMES


def say_message(words: Words, joined: Joined) -> tuple[Words, bytes]:
    """Return the datagram that carries a message: its words, and the MAD.

    ValueError for what no message has.
    """
    kind = _NAMES[words.name]
    given = dict(words.fields)
    mine = {name: given.pop(name) for name in _own_names(kind) if name in given}
    tid = _number(mine.pop("tid", Relative(0)), _transaction(joined))
    fields = _defaults(kind, joined, mine)
    for name, value in mine.items():
        field = _FIELDS[kind].get(name)
        if field is not None:
            fields[field] = _value(name, value, joined)
    mad = CmMad(tid, kind(**fields)).pack()
    return Words("UD.SEND_ONLY", _DATAGRAM | given), mad


def hear_message(payload: bytes, joined: Joined) -> tuple[str, Mapping[str, int], bytes] | None:
    """Return name, fields and private data of a MAD that is for this case; else None.

    What is learned of the endpoint is noted in `joined`. DecodeError for what is no MAD.
    """
    mad = CmMad.unpack(payload)
    if mad.pack() != payload:
        raise DecodeError("a MAD whose unused bytes are not zero")
    kind = type(mad.message)
    name = _CALLED.get(kind)
    if name is None:
        return None
    message: Any = mad.message  # one of a dozen kinds, whose fields the table has
    fields = {"tid": mad.transaction_id}
    fields |= {ours: int(getattr(message, its)) for ours, its in _FIELDS[kind].items()}
    # A case has two IDs; what is for others is of a case before this one.
    mine = range(joined.comm, joined.comm + 2)
    if kind is not Req and fields.get("remote", fields["id"]) not in mine:
        return None
    if kind in {Req, Rep}:
        joined.learn(fields["id"], fields["qpn"], fields["psn"])
    return name, fields, bytes(message.private_data[_DATA_AT.get(kind, 0) :])


def wanted(field: str, value: Value, joined: Joined) -> int:
    """Return the number that an expected field of a message stands for."""
    if field == "tid":
        return _number(value, _transaction(joined))
    return _value(field, value, joined)


def _own_names(kind: type[Message]) -> set[str]:
    further = {"tid", "data"}
    if kind in {Req, SidrReq}:
        further |= {"port", "version", "destination"}
    if kind is Req:
        further.add("gid")
    return {*_FIELDS[kind]} - ({"qkey"} if kind is not SidrRep else set()) | further


def _transaction(joined: Joined) -> int:
    return 0x7_0000_0000 + joined.comm


def _number(value: Value, base: int) -> int:
    if isinstance(value, Relative):
        return base + value.by
    return int(value)


def _value(name: str, value: Value, joined: Joined) -> int:
    bases = {"psn": joined.wants.sq_psn, "qpn": joined.theirs.qp_num}
    bases |= {"id": joined.comm, "remote": joined.comm}
    named = {"ours": joined.comm, "theirs": joined.their_comm}
    if name == "qpn":
        named = {"ours": joined.ours.qp_num, "theirs": joined.theirs.qp_num}
    if isinstance(value, str):
        if value not in named:
            raise ValueError(f"{name}={value} is unknown, legal is {', '.join(named)}")
        return named[value]
    return _number(value, bases.get(name, 0))


def _defaults(
    kind: type[Message], joined: Joined, given: Mapping[str, Value]
) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    known = _FIELDS[kind]
    if "id" in known:
        fields[known["id"]] = joined.comm
    if "remote" in known:
        fields[known["remote"]] = joined.their_comm
    if kind is Dreq:
        fields["remote_qpn"] = joined.theirs.qp_num
    elif kind in {Req, Rep}:
        fields |= {
            "local_qpn": joined.ours.qp_num, "starting_psn": joined.wants.sq_psn,
            "responder_resources": 4, "initiator_depth": 4, "local_ca_guid": GUID,
        }  # fmt: skip
    elif kind in {Rej, Mra}:
        fields |= {"message_rejected": 0, "reason": 28} if kind is Rej else {}
        fields |= {"message_mraed": 0, "service_timeout": 20} if kind is Mra else {}
    elif kind is SidrRep:
        fields |= {"status": 0, "qpn": joined.ours.qp_num, "q_key": 0x1234567, "service_id": 0}
    data = str(given.get("data", "")).encode()
    if kind in {Req, SidrReq}:
        space = PortSpace.TCP if kind is Req else PortSpace.UDP
        fields["service_id"] = service_id(
            space, _number(given.get("port", Relative(0)), joined.service)
        )
        fields["private_data"] = _with_ip_header(kind, joined, given, data)
    elif data:
        room = 196 if kind is Rep else 148
        fields["private_data"] = data.ljust(room, b"\0")
    if kind is Req:
        theirs = joined.theirs.ip
        remote = theirs[:-1] + b"\x63" if given.get("gid") == "stranger" else theirs
        fields["primary"] = Path(
            0xFFFF, 0xFFFF, gid_of(joined.ours.ip), gid_of(remote),
            flow_label=0x12345, hop_limit=64, local_ack_timeout=19,
        )  # fmt: skip
    return fields


def _with_ip_header(
    kind: type[Message], joined: Joined, given: Mapping[str, Value], data: bytes
) -> bytes:
    theirs = joined.theirs.ip
    where = theirs[:-1] + b"\x63" if given.get("destination") == "stranger" else theirs
    buf = bytearray(92 if kind is Req else 216)
    IpHeader(50_000, joined.ours.ip, where).pack_into(buf)
    if "version" in given:
        buf[0] = _number(given["version"], 0)
    buf[IP_HEADER.size : IP_HEADER.size + len(data)] = data
    return bytes(buf)


def mad_of(payload: bytes) -> bytes:
    """Return a MAD of 256 bytes. DecodeError for another size."""
    if len(payload) != 256:
        raise DecodeError(f"a MAD of {len(payload)} bytes, wanted 256")
    return payload
