"""A communication manager and a scripted peer: what is said and told, one thing at a time."""

import random

from transports.clock import MS
from transports.roce.cm.events import ConnectReply, ConnectRequest
from transports.roce.cm.machine import CommunicationManager
from transports.roce.cm.parameters import (
    AcceptParameters,
    CmConfig,
    ConnectParameters,
    Listening,
)
from wire.roce.cm.connection import Path, Rep, Req
from wire.roce.cm.ip_service import IpHeader, PortSpace, service_id
from wire.roce.cm.message import CmMad
from wire.roce.gid import gid_of

OURS, THEIRS = b"\x0a\0\0\x02", b"\x0a\0\0\x01"
OURS6, THEIRS6 = (bytes.fromhex("fd00" + "00" * 13 + end) for end in ("02", "01"))
OUR_GUID, THEIR_GUID = 0x505400FFFE000002, 0x505400FFFE000001
OUR_QP, THEIR_QP = 0x101, 0x202
OUR_PSN, THEIR_PSN = 0x111111, 0x222222
TID, THEIR_ID = 0x2_0000_0077, 0x77
SERVICE = service_id(PortSpace.TCP, 7174)
PORT = 0xE268
REQ_WAIT, REP_WAIT = 6144 * MS, 4096 * MS  # the lists' 6.1 s and 4.1 s
TIMEWAIT = 2048 * MS


def ip_private_data(source=THEIRS, destination=OURS, data=b"", size=92):
    buf = bytearray(size)
    IpHeader(PORT, source, destination).pack_into(buf)
    buf[36 : 36 + len(data)] = data
    return bytes(buf)


def request(**fields):
    """Return a REQ as rping of a kernel sends it, but for what is given."""
    values = {
        "local_comm_id": THEIR_ID,
        "service_id": SERVICE,
        "local_ca_guid": THEIR_GUID,
        "local_qpn": THEIR_QP,
        "starting_psn": THEIR_PSN,
        "responder_resources": 1,
        "initiator_depth": 1,
        "primary": path(),
        "private_data": ip_private_data(),
    }
    return Req(**(values | fields))


def path(source=THEIRS, destination=OURS, **fields):
    values = {"flow_label": 0x12345, "hop_limit": 64, "local_ack_timeout": 19}
    return Path(0xFFFF, 0xFFFF, gid_of(source), gid_of(destination), **(values | fields))


def reply(to, **fields):
    """Return the REP of the peer to our REQ `to`."""
    values = {
        "local_comm_id": THEIR_ID,
        "remote_comm_id": to.local_comm_id,
        "local_qpn": THEIR_QP,
        "starting_psn": THEIR_PSN,
        "responder_resources": to.initiator_depth,
        "initiator_depth": to.responder_resources,
        "local_ca_guid": THEIR_GUID,
    }
    return Rep(**(values | fields))


class Talk:
    """Our manager; the peer is the test."""

    def __init__(self, seed=1, listens=True, **config):
        values = {"addresses": (OURS, OURS6), "ca_guid": OUR_GUID}
        self.cm = CommunicationManager(CmConfig(**(values | config)), random.Random(seed))
        self.now = 0
        self.mad = None  # the last that was said, as sent
        if listens:
            self.cm.listen(Listening(SERVICE))

    # -- what happens -----------------------------------------------------------------------

    def hears(self, message, tid=TID, source=THEIRS, destination=OURS):
        self.hears_raw(CmMad(tid, message).pack(), source, destination)

    def hears_raw(self, mad, source=THEIRS, destination=OURS, src_qp=1):
        self.cm.receive_mad(mad, destination, source, self.now, src_qp)

    def passes(self, duration):
        """Let time pass, and the manager be called exactly when it wants to."""
        until = self.now + duration
        while (deadline := self.cm.deadline) is not None and deadline <= until:
            self.now = deadline
            self.cm.expire(deadline)
        self.now = until
        self.cm.expire(until)

    # -- what is seen -----------------------------------------------------------------------

    def says(self, kind):
        """Return the next message, which must be of this kind."""
        outgoing = self.next_mad()
        value = CmMad.unpack(outgoing.mad)
        assert type(value.message) is kind, value
        assert (outgoing.dest_qp, outgoing.q_key) == (1, 0x80010000)
        return value.message

    def next_mad(self):
        outgoing = next(self.cm.transmit_mads(self.now), None)
        assert outgoing is not None, "nothing is said"
        self.mad = outgoing
        return outgoing

    @property
    def transaction_id(self):
        return CmMad.unpack(self.mad.mad).transaction_id

    def says_nothing(self):
        assert [*self.cm.transmit_mads(self.now)] == []

    def tells(self, kind):
        """Return the next event, which must be of this kind."""
        event = next(self.cm.events(), None)
        assert type(event) is kind, event
        return event

    def tells_nothing(self):
        assert [*self.cm.events()] == []

    def is_quiet(self):
        self.says_nothing()
        self.tells_nothing()

    # -- whole ways -------------------------------------------------------------------------

    def requested(self, **fields):
        """Return a connection that the peer asks for."""
        self.hears(request(**fields))
        return self.tells(ConnectRequest).connection

    def accepted(self, **fields):
        """Return one that we have accepted."""
        connection = self.requested(**fields)
        self.cm.accept(connection, AcceptParameters(OUR_QP, OUR_PSN), self.now)
        self.says(Rep)
        return connection

    def connecting(self, **fields):
        """Return a connection that we ask for, and our REQ."""
        values = {
            "service_id": SERVICE,
            "local_ip": OURS,
            "remote_ip": THEIRS,
            "qp_num": OUR_QP,
            "starting_psn": OUR_PSN,
            "source_port": PORT,
        }
        connection = self.cm.connect(ConnectParameters(**(values | fields)), self.now)
        return connection, self.says(Req)

    def replied(self):
        """Return a connection that the peer has accepted."""
        connection, req = self.connecting()
        self.hears(reply(req), self.transaction_id)
        self.tells(ConnectReply)
        return connection
