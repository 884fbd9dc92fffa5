"""Configuration files and the UAPI: what `wg` writes is read, and what it reads is written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.transports.overlay.world import EPOCH, World, kind
from tests.wire.strategies import moderate, octets
from transports.clock import S
from transports.overlay import configuration, uapi
from transports.overlay.allowed_ips import Prefix
from transports.overlay.configuration import (
    Configuration,
    ConfigurationError,
    PeerConfiguration,
    parse,
    render,
)
from transports.overlay.endpoint import Endpoint
from transports.overlay.keys import PrivateKey, Secret, to_base64

# The example of wg(8), CONFIGURATION FILE FORMAT EXAMPLE; its keys are everybody's.
EXAMPLE = """\
[Interface]
PrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=
ListenPort = 51820

[Peer]
PublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=
Endpoint = 192.95.5.67:1234
AllowedIPs = 10.192.122.3/32, 10.192.124.1/24

[Peer]
PublicKey = TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=
Endpoint = [2607:5300:60:6b0::c05f:543]:2468
AllowedIPs = 10.192.122.4/32, 192.168.0.0/16

[Peer]
PublicKey = gN65BkIKy1eCE9pP1wdc8ROUtkHLF2PfAqYdyYBz6EA=
Endpoint = test.wireguard.com:18981
AllowedIPs = 10.10.10.230/32
"""

PUBLIC = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg="
PRIVATE = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk="

# -- files -------------------------------------------------------------------------------------


def test_the_example_of_the_manual_page():
    read = parse(EXAMPLE)
    assert to_base64(read.private_key.reveal()) == PRIVATE
    assert read.listen_port == 51820
    assert [to_base64(peer.public_key)[:4] for peer in read.peers] == ["xTIB", "TrMv", "gN65"]
    assert [peer.endpoint for peer in read.peers] == [
        ("192.95.5.67", 1234), ("2607:5300:60:6b0::c05f:543", 2468),
        ("test.wireguard.com", 18981),
    ]  # fmt: skip
    assert list(map(str, read.peers[0].allowed_ips)) == ["10.192.122.3/32", "10.192.124.0/24"]
    assert read.names() == [("test.wireguard.com", 18981)]


def test_spellings_that_wg_takes():
    read = parse(
        f"""
        # a comment
        [interface]   # and another
        privatekey={PRIVATE}
        FWMARK = 0x10
        ListenPort = 1
        LISTENPORT = 2
        Address = 10.0.0.1/24, fd00::1/64
        PostUp = iptables -A FORWARD -i %i -j ACCEPT
        [PEER]
        PublicKey = {PUBLIC}
        AllowedIPs = 10.0.0.0/8
        allowedips = fd00::/8,10.1.2.3
        PersistentKeepalive = off
        PresharedKey = {PRIVATE}
        """
    )
    assert (read.fwmark, read.listen_port) == (16, 2)
    assert read.quick == [
        ("Address", "10.0.0.1/24, fd00::1/64"),
        ("PostUp", "iptables -A FORWARD -i %i -j ACCEPT"),
    ]
    assert list(map(str, read.peers[0].allowed_ips)) == [
        "10.0.0.0/8", "fd00::/8", "10.1.2.3/32",
    ]  # fmt: skip
    assert read.peers[0].persistent_keepalive == 0
    assert read.peers[0].preshared_key is not None


PEER = f"[Peer]\nPublicKey = {PUBLIC}\n"
WRONG = {
    "PrivateKey = x": "line 1: before the first section: write",
    "[Interfaces]": "line 1: '[Interfaces]' is no section",
    "[Interface]\nListenPort = 65536": "line 2: ListenPort: '65536' is no number of 0 to 65535",
    "[Interface]\nListenPort = -1": "line 2: ListenPort: '-1' is no number",
    "[Interface]\nListenPort = 1_0": "line 2: ListenPort: '1_0' is no number",
    "[Interface]\nListenPort =": "line 2: ListenPort has no value",
    "[Interface]\nListenPort": "line 2: ListenPort has no value",
    "[Interface]\nFwMark = 0x100000000": "line 2: FwMark: '0x100000000' is no number",
    "[Interface]\nPrivateKey = short": "line 2: PrivateKey: a key is 44 characters of base64",
    "[Interface]\nAllowedIPs = 10.0.0.0/8": "line 2: 'AllowedIPs' is not known, legal is Pri",
    "[Peer]\nEndpoint = a:1\n\n[Peer]": "line 1: this [Peer] has no PublicKey",
    "[Interface]\n[Peer]\nEndpoint = a:1": "line 2: this [Peer] has no PublicKey",
    PEER + "AllowedIPs =": "line 3: AllowedIPs has no value",
    PEER + "AllowedIPs = 10.0.0.0/8,": "line 3: AllowedIPs: '' is no prefix",
    PEER + "AllowedIPs = 10.0.0.0/33": "line 3: AllowedIPs: '10.0.0.0/33' is no prefix",
    PEER
    + "Endpoint = fd00::1:80": "line 3: Endpoint: 'fd00::1:80': write an IPv6 address in br",
    PEER + "Endpoint = host": "line 3: Endpoint: 'host' is no endpoint",
    PEER + "Endpoint = host:0": "line 3: Endpoint: 'host:0' is no endpoint",
    PEER + "PersistentKeepalive = 65536": "line 3: PersistentKeepalive: '65536' is no number",
    PEER + "PresharedKey =": "line 3: PresharedKey has no value",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_mistake_is_named_with_its_line_and_what_is_legal(text):
    with pytest.raises(ConfigurationError) as refused:
        parse(text)
    assert str(refused.value).startswith(WRONG[text])


@pytest.mark.parametrize(
    "line",
    [
        f"[Interface]\n{PRIVATE}",
        f"[Interface]\n{PRIVATE[:-1]}",
        f"[Interface]\nPrivateKey = x{PRIVATE}",
        f"[Interface]\nPrivate Key = {PRIVATE}",
        f"[Interface]\nListenPort = {PRIVATE}",
        f"[{PRIVATE}]",
        f"[Peer]\nPresharedKey = {PRIVATE}0",
        f"[Peer]\nAllowedIPs = 10.0.0.0/8, {PRIVATE}",
        f"[Peer]\nEndpoint = {PRIVATE}",
        f"[Peer]\nEndpoint = ::{PRIVATE}",
        f"[Peer]\nPersistentKeepalive = {PRIVATE}",
    ],
)
def test_a_mistake_never_repeats_a_key(line):
    with pytest.raises(ConfigurationError) as refused:
        parse(line)
    assert PRIVATE[:20] not in str(refused.value)


@pytest.mark.parametrize("key", ["listen_port", "fwmark", "endpoint", "allowed_ip"])
def test_nor_does_the_uapi_repeat_one(key):
    w = World()
    peer = "" if key in {"listen_port", "fwmark"} else f"public_key={'11' * 32}\n"
    told = uapi.answer(f"set=1\n{peer}{key}={'ab' * 32}".encode(), w.a.tunnel, w.now)
    assert told.why
    assert "abab" not in told.why
    shown = uapi.answer(b"get=1", w.a.tunnel, w.now)
    assert w.a.private.reveal().hex() in shown.text
    assert w.a.private.reveal().hex()[:20] not in repr(shown)


keys = octets(32)
prefixes = st.builds(
    Prefix.of, octets(4), st.integers(0, 32)
) | st.builds(Prefix.of, octets(16), st.integers(0, 128))  # fmt: skip
hosts = st.tuples(
    st.sampled_from(["192.0.2.1", "fd00::1", "fe80::1%2", "node-1.example"]),
    st.integers(1, 65535),
)
peers = st.builds(
    PeerConfiguration, keys.filter(any), st.none() | keys.map(Secret),
    st.lists(prefixes, max_size=4), st.none() | hosts, st.integers(0, 65535),
)  # fmt: skip
configurations = st.builds(
    Configuration, st.none() | keys.map(PrivateKey), st.integers(0, 65535),
    st.integers(0, 0xFFFFFFFF), st.lists(peers, max_size=3),
    st.lists(st.sampled_from([("Address", "10.0.0.1/24"), ("PostUp", "ip r")]), max_size=3),
)  # fmt: skip


@moderate
@given(configurations)
def test_what_is_written_is_read_as_the_same(value):
    assert parse(render(value)) == value


@moderate
@given(st.text(max_size=200) | st.lists(st.sampled_from(EXAMPLE.splitlines())).map("\n".join))
def test_any_text_is_read_or_refused_by_line(text):
    line = 1
    try:
        parse(text)
    except ConfigurationError as error:
        line = error.line
    assert 1 <= line <= max(1, len(text.splitlines()))


def test_a_file_is_applied_as_setconf_does_and_shown_as_showconf_does():
    w = World()
    before = list(w.a.tunnel.peers())
    read = parse(EXAMPLE)
    with pytest.raises(ValueError, match=r"nobody has resolved .*test\.wireguard\.com:18981"):
        configuration.apply(read, w.a.tunnel, w.now)
    assert list(w.a.tunnel.peers()) == before
    place = Endpoint.parse("192.0.2.9:18981")
    configuration.apply(read, w.a.tunnel, w.now, {("test.wireguard.com", 18981): place})
    assert w.b.public not in w.a.tunnel
    shown = configuration.of(w.a.tunnel)
    read.peers[2].endpoint = ("192.0.2.9", 18981)
    assert shown.peers == read.peers
    assert (shown.listen_port, shown.private_key) == (51820, read.private_key)
    configuration.apply(shown, w.a.tunnel, w.now)  # again: nothing changes
    assert configuration.of(w.a.tunnel) == shown


# -- UAPI --------------------------------------------------------------------------------------


def ask(w, text, node=None):
    return uapi.answer(text.encode(), (node or w.a).tunnel, w.now)


P = b"\x11" * 32
F, K = "22" * 32, "33" * 32
# What `wg` of Debian 12 sends; wireguard.md, section 13.
WG_SET = f"""set=1
private_key={K}
listen_port=1234
fwmark=16
public_key={P.hex()}
preshared_key={F}
endpoint=1.2.3.4:55
persistent_keepalive_interval=25
replace_allowed_ips=true
allowed_ip=10.0.0.0/8
allowed_ip=fd00::/64"""


def test_what_wg_set_sends_is_done_and_shown_by_get():
    w = World()
    told = ask(w, WG_SET)
    assert told == uapi.Answer("errno=0\n\n", 1234, 16)
    text = ask(w, "get=1").text
    assert text.endswith("errno=0\n\n")
    head, own, _ = text.partition(f"public_key={P.hex()}\n")
    assert head.startswith(f"private_key={PrivateKey(bytes.fromhex(K)).reveal().hex()}\n")
    assert "listen_port=1234\nfwmark=16\n" in head
    assert own
    assert text.partition(own)[2] == (
        f"preshared_key={F}\nprotocol_version=1\nendpoint=1.2.3.4:55\n"
        "last_handshake_time_sec=0\nlast_handshake_time_nsec=0\ntx_bytes=0\nrx_bytes=0\n"
        "persistent_keepalive_interval=25\nallowed_ip=10.0.0.0/8\nallowed_ip=fd00::/64\n"
        "errno=0\n\n"
    )
    assert f"public_key={w.b.public.hex()}" in head  # `wg set` never replaces other peers
    assert {kind(d) for d in w.a.out()} == {"initiation"}  # persistent keepalive: at once


def test_get_shows_a_session():
    w = World()
    w.now += 123
    w.shake()
    text = ask(w, "get=1").text
    seconds, rest = divmod(EPOCH + w.now, S)
    assert f"last_handshake_time_sec={seconds}\nlast_handshake_time_nsec={rest}\n" in text
    assert "tx_bytes=244\nrx_bytes=92\n" in text
    assert f"preshared_key={'0' * 64}\n" in text


def test_remove_update_only_and_replace_peers():
    w = World()
    c = b"\x09" * 32
    assert ask(w, f"set=1\npublic_key={c.hex()}\nupdate_only=true\nallowed_ip=::/0").text == (
        "errno=0\n\n"
    )
    assert c not in w.a.tunnel
    ask(w, f"set=1\npublic_key={c.hex()}")
    assert c in w.a.tunnel
    ask(w, f"set=1\npublic_key={c.hex()}\nupdate_only=true\nallowed_ip=10.9.0.0/16")
    ask(w, f"set=1\npublic_key={w.b.public.hex()}\nremove=true")
    assert [status.public_key for status in w.a.tunnel.peers()] == [c]
    ask(w, f"set=1\npublic_key={c.hex()}\nallowed_ip=-10.9.0.0/16\nallowed_ip=10.8.0.0/16")
    (status,) = w.a.tunnel.peers()
    assert list(map(str, status.allowed_ips)) == ["10.8.0.0/16"]
    ask(w, f"set=1\nreplace_peers=true\npublic_key={P.hex()}\nprotocol_version=1")
    assert [status.public_key for status in w.a.tunnel.peers()] == [P]
    ask(w, f"set=1\npublic_key={w.a.public.hex()}\nallowed_ip=10.0.0.0/8")  # ourselves
    assert w.a.public not in w.a.tunnel


def test_keys_of_zeros_remove_keys():
    w = World()
    ask(w, f"set=1\nprivate_key={'0' * 64}\npublic_key={w.b.public.hex()}\npreshared_key={F}")
    assert w.a.tunnel.private_key is None
    assert not w.a.status(w.b).preshared_key.is_zero
    ask(w, f"set=1\npublic_key={w.b.public.hex()}\npreshared_key={'0' * 64}")
    assert w.a.status(w.b).preshared_key.is_zero
    assert not ask(w, "get=1").text.startswith("private_key")


OF_P = f"set=1\npublic_key={P.hex()}\n"
BAD_SETS = {
    "set=1\nprivate_key=zz": "private_key: a key is 64 hexadecimal digits here",
    "set=1\nlisten_port=65536": "listen_port: '65536' is no number of 0 to 65535",
    "set=1\nlisten_port=0x10": "listen_port: '0x10' is no decimal number",
    "set=1\nfwmark=-1": "fwmark: '-1' is no decimal number",
    "set=1\nreplace_peers=false": "replace_peers: the only value is true; leave the line out",
    "set=1\nendpoint=1.2.3.4:5": "endpoint: not known before the first public_key",
    "set=1\nunknown=1": "unknown: not known before the first public_key",
    f"set=1\n{K}": "set: a line is key=value",
    "set=1\npublic_key=11": "public_key: a key is 64",
    f"{OF_P}listen_port=1": "listen_port: not known for a peer",
    f"{OF_P}remove=false": "remove: the only value is true",
    f"{OF_P}endpoint=1.2.3.4": "endpoint: '1.2.3.4' is no endpoint",
    f"{OF_P}allowed_ip=1.2.3.4/40": "allowed_ip: '1.2.3.4/40' is no prefix",
    f"{OF_P}persistent_keepalive_interval=70000": "persistent_keepalive_interval: '70000'",
    f"{OF_P}protocol_version=2": "protocol_version: not known for a peer",
}


@pytest.mark.parametrize("request_", BAD_SETS)
def test_trap_58_a_wrong_setting_is_einval_with_a_negative_sign(request_):
    w = World()
    told = ask(w, request_)
    assert told.text == "errno=-22\n\n"
    assert told.why.startswith(BAD_SETS[request_])
    assert K not in told.why


def test_what_came_before_a_mistake_stays():
    w = World()
    told = ask(w, "set=1\nlisten_port=7\nfwmark=x")
    assert (told.listen_port, w.a.tunnel.listen_port) == (7, 7)


def test_requests_that_are_none():
    w = World()
    assert ask(w, "").text == ask(w, "get=2").text == "errno=-71\n\n"
    assert ask(w, "get=1\nx=y").text == "errno=22\n\n"  # positive: so `wg` can print it
    assert uapi.answer(b"\xff", w.a.tunnel, 0).text == "errno=-22\n\n"
    assert uapi.failure(uapi.EADDRINUSE) == "errno=-98\n\n"


@moderate
@given(
    st.binary(max_size=300)
    | st.lists(st.sampled_from(WG_SET.splitlines()), max_size=20).map(
        lambda lines: "\n".join(["set=1", *lines]).encode()
    )
)
def test_any_request_gets_an_answer(request_):
    w = World()
    told = uapi.answer(request_, w.a.tunnel, w.now)
    assert told.text.endswith("\n\n")
    assert "errno=" in told.text


def test_requests_are_cut_at_empty_lines_however_they_arrive():
    raw = b"get=1\n\nset=1\nlisten_port=1\n\nget"
    whole = uapi.Requests()
    assert list(whole.feed(raw)) == [b"get=1", b"set=1\nlisten_port=1"]
    bits = uapi.Requests()
    got = [request for byte in raw for request in bits.feed(bytes([byte]))]
    assert got == [b"get=1", b"set=1\nlisten_port=1"]
    assert list(bits.feed(b"=1\n\n")) == [b"get=1"]


def test_a_request_has_a_bound():
    requests = uapi.Requests()
    with pytest.raises(ValueError, match="at most 8388608 bytes"):
        list(requests.feed(b"x" * (uapi.MAX_REQUEST + 1)))
