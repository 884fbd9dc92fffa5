"""Wireshark decrypts what two tunnels say, by the secrets that a capture may hold."""

import pytest

from tests.interop.wireshark import tshark
from tests.transports.overlay.world import World
from transports.clock import S
from transports.overlay.events import KeyLog
from transports.overlay.keys import Secret
from wire.ipv4 import Ipv4, Protocol
from wire.pcapng import (
    SECRETS_WIREGUARD,
    decryption_secrets,
    enhanced_packet,
    interface_block,
    section_header,
)
from wire.udp import Udp

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.needs("tshark")]

RAW_IP = 101  # link type: no Ethernet
FIELDS = (
    "wg.type", "wg.handshake_ok", "wg.decryption_error", "wg.keepalive", "wg.counter", "ip.src",
    "wg.timestamp.value",
)  # fmt: skip


def packet(source, destination, payload):
    """Return the IPv4 packet around a UDP payload."""
    length = 8 + len(payload)
    buf = bytearray(28)
    ip = Ipv4(source.address, destination.address, Protocol.UDP, 20 + length)
    ip.pack_into(buf)
    Udp(source.port, destination.port, length).pack_into(buf, 20)
    return bytes(buf) + payload


def conversation(psk):
    """Return the secrets of a, and what both say in two sessions."""
    w = World(key_log=True)
    if psk is not None:
        w.a.tunnel.set_preshared_key(w.b.public, psk)
        w.b.tunnel.set_preshared_key(w.a.public, psk)
    said = []

    def keep(_rng, node, payload):
        other = w.b if node is w.a else w.a
        said.append((w.now, packet(node.endpoint, other.endpoint, payload)))
        return [1000]

    w.a.send(w.b, size=101)
    w.run(w.now + 30 * S, judge=keep)
    w.b.send(w.a, size=1420)
    w.run(w.now + 100 * S, judge=keep)
    w.a.send(w.b, size=60)
    w.run(w.now + 1 * S, judge=keep)
    return "".join(event.text for event in w.a.of(KeyLog)), said


@pytest.mark.parametrize("psk", [None, Secret(b"p" * 32)], ids=["no psk", "psk"])
@pytest.mark.parametrize("with_secrets", [True, False], ids=["secrets", "none"])
def test_a_capture_opens_decrypted_if_it_holds_the_secrets(tmp_path, psk, with_secrets):
    secrets, said = conversation(psk)
    blocks = [section_header(), interface_block("a", link_type=RAW_IP)]
    if with_secrets:
        blocks.append(decryption_secrets(SECRETS_WIREGUARD, secrets.encode()))
    blocks += [enhanced_packet(0, at, raw) for at, raw in said]
    file = tmp_path / "wg.pcapng"
    file.write_bytes(b"".join(blocks))
    rows = tshark(file, FIELDS)
    kinds = [row["wg.type"] for row in rows]
    assert kinds.count("1") == kinds.count("2") == 2  # the second session began at 120 s
    assert all(row["wg.decryption_error"] == "" for row in rows)
    responses = [row["wg.handshake_ok"] for row in rows if row["wg.type"] == "2"]
    data = [row for row in rows if row["wg.type"] == "4" and not row["wg.keepalive"]]
    inside = [row["ip.src"] for row in data]
    if with_secrets:
        assert responses in (["1", "1"], ["True", "True"])
        assert inside == ["192.0.2.1,10.0.0.1", "192.0.2.2,10.0.0.2", "192.0.2.1,10.0.0.1"]
    else:
        assert not any("10.0.0" in row["ip.src"] for row in rows)
