"""The primitives against the vectors of their texts."""

import hashlib
import hmac

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from hypothesis import given
from hypothesis import strategies as st

from tests.transports.overlay.vectors import load, needs_vectors
from tests.wire.strategies import moderate
from transports.overlay import noise, tai64n, xchacha
from transports.overlay.keys import PrivateKey, Secret, from_base64, from_hex, to_base64

KDF = load("blake2s_hmac_kdf.json")
XCHACHA = load("aead_xchacha20poly1305.json")
CHACHA = load("aead_chacha20poly1305.json")
X25519 = load("x25519.json")
BEHAVIOUR = load("behaviour.json")
h = bytes.fromhex


def rows(file, *path):
    for key in path:
        file = file.get(key, {}) if isinstance(file, dict) else file
    return list(file)


@needs_vectors
@pytest.mark.parametrize("row", rows(X25519, "vectors"), ids=lambda row: row["public"][:8])
def test_x25519_and_a_result_of_zero_is_none(row):
    want = h(row["result"]) if row["valid"] else None
    assert PrivateKey(h(row["private"])).dh(h(row["public"])) == want


@needs_vectors
def test_blake2s_plain_and_keyed():
    for size, (plain, keyed) in enumerate(
        zip(KDF["blake2s"]["unkeyed"], KDF["blake2s"]["keyed"], strict=True)
    ):
        data = bytes(range(size))
        assert noise.hash_of(data) == h(plain)
        assert noise.hash_of(data[:7], data[7:]) == h(plain)
        key = bytes(range(32))
        assert hashlib.blake2s(data, key=key).digest() == h(keyed)


@needs_vectors
@pytest.mark.parametrize("row", rows(KDF, "hmac_blake2s", "vectors"))
def test_hmac_is_the_ordinary_one(row):
    assert noise.hmac_of(h(row["key"]), h(row["data"])) == h(row["mac"])


@moderate
@given(st.binary(max_size=150), st.binary(max_size=150))
def test_hmac_is_the_standard_librarys(key, data):
    assert noise.hmac_of(key, data) == hmac.new(key, data, hashlib.blake2s).digest()


@needs_vectors
@pytest.mark.parametrize("row", rows(KDF, "blake2s_mac16", "vectors"))
def test_mac_is_keyed_blake2s_of_16_bytes(row):
    assert noise.mac_of(h(row["key"]), h(row["data"])) == h(row["mac"])


@needs_vectors
@pytest.mark.parametrize("row", rows(KDF, "kdf", "vectors"))
def test_kdf(row):
    outputs = noise.kdf(3, h(row["chaining_key"]), h(row["input"]))
    assert [output.hex() for output in outputs] == [row["t0"], row["t1"], row["t2"]]
    assert noise.kdf(2, h(row["chaining_key"]), h(row["input"])) == outputs[:2]


def nonce_of(row):
    """Return the 12 bytes; most rows give the 8 that are a counter."""
    given = h(row["nonce"])
    return noise.NONCE.pack(int.from_bytes(given, "little")) if len(given) == 8 else given


@needs_vectors
def test_the_aead_of_the_library_and_our_nonce():
    for row in CHACHA["encrypt"]:
        nonce = nonce_of(row)
        sealed = ChaCha20Poly1305(h(row["key"])).encrypt(
            nonce, h(row["plaintext"]), h(row["aad"])
        )
        assert sealed == h(row["ciphertext"]), row["name"]


@needs_vectors
@pytest.mark.parametrize("row", rows(CHACHA, "decrypt"), ids=lambda row: row["name"])
def test_the_aead_refuses_what_it_must(row):
    nonce = nonce_of(row)
    aead = ChaCha20Poly1305(h(row["key"]))
    if row["must_fail"]:
        with pytest.raises(InvalidTag):
            aead.decrypt(nonce, h(row["ciphertext"]), h(row["aad"]))
    else:
        assert aead.decrypt(nonce, h(row["ciphertext"]), h(row["aad"])) == h(row["plaintext"])


@needs_vectors
@pytest.mark.parametrize("row", rows(XCHACHA, "hchacha20"))
def test_hchacha20(row):
    assert xchacha.hchacha20(h(row["key"]), h(row["nonce16"])) == h(row["subkey"])


def plain_hchacha20(key, nonce):
    """HChaCha20 word by word, as the draft's section 2.2 describes it."""
    words = [int.from_bytes(b"expand 32-byte k"[i : i + 4], "little") for i in range(0, 16, 4)]
    words += [int.from_bytes((key + nonce)[i : i + 4], "little") for i in range(0, 48, 4)]

    def quarter(a, b, c, d):
        for x, y, z, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            words[x] = (words[x] + words[y]) & 0xFFFFFFFF
            mixed = words[z] ^ words[x]
            words[z] = (mixed << turn | mixed >> (32 - turn)) & 0xFFFFFFFF

    for _ in range(10):
        for column in range(4):
            quarter(column, 4 + column, 8 + column, 12 + column)
        for column in range(4):
            quarter(column, 4 + (column + 1) % 4, 8 + (column + 2) % 4, 12 + (column + 3) % 4)
    return b"".join(word.to_bytes(4, "little") for word in words[:4] + words[12:])


@moderate
@given(st.binary(min_size=32, max_size=32), st.binary(min_size=16, max_size=16))
def test_hchacha20_from_key_stream_is_hchacha20_from_the_text(key, nonce):
    assert xchacha.hchacha20(key, nonce) == plain_hchacha20(key, nonce)


@needs_vectors
@pytest.mark.parametrize(
    "row", [*rows(XCHACHA, "aead"), *rows(XCHACHA, "encrypt"), *rows(XCHACHA, "decrypt")]
)
def test_xchacha20poly1305(row):
    key, nonce, aad = h(row["key"]), h(row["nonce"]), h(row["aad"])
    plain, sealed = h(row["plaintext"]), h(row["ciphertext"])
    assert xchacha.encrypt(key, nonce, plain, aad) == sealed
    assert xchacha.decrypt(key, nonce, sealed, aad) == plain
    assert xchacha.decrypt(key, nonce, sealed, aad + b"x") is None
    assert xchacha.decrypt(key, nonce, sealed[:-1], aad) is None


@needs_vectors
@pytest.mark.parametrize("row", rows(BEHAVIOUR, "tai64n", "vectors"))
def test_tai64n_with_its_low_bits_cleared(row):
    unix = row["unix_s"] * 1_000_000_000 + row["unix_ns"]
    assert tai64n.stamp(unix) == h(row["whitened"])


@moderate
@given(st.integers(0, 1 << 62))
def test_the_next_tick_is_the_first_time_with_a_greater_stamp(unix):
    later = tai64n.next_tick(unix)
    assert tai64n.stamp(later) > tai64n.stamp(unix)
    assert tai64n.stamp(later - 1) == tai64n.stamp(unix)


def test_a_secret_shows_in_nothing_that_prints():
    raw = bytes(range(32))
    for secret in (Secret(raw), PrivateKey(raw)):
        said = f"{secret} {secret!r} {[secret]} {vars(Secret)}"
        assert raw.hex()[8:24] not in said
        assert str(raw)[10:30] not in said
        with pytest.raises(TypeError, match="not pickled"):
            secret.__reduce__()
    with pytest.raises(ValueError, match="32 bytes, not 31") as refused:
        Secret(raw[:31])
    assert "\\x" not in str(refused.value)


def test_a_private_key_is_clamped_and_two_spellings_of_it_are_one():
    assert PrivateKey(b"\xff" * 32).reveal() == b"\xf8" + b"\xff" * 30 + b"\x7f"
    assert PrivateKey(bytes(32)) == PrivateKey(b"\x07" + bytes(30) + b"\x80")
    assert Secret(bytes(32)) != PrivateKey(bytes(32))
    assert Secret(bytes(32)).is_zero


@pytest.mark.parametrize(
    "text", ["", "x" * 44, "A" * 43, "A" * 44, "A" * 42 + "B=", "A" * 42 + "A=\n", "é" * 44]
)
def test_a_key_that_is_none_is_refused_without_being_repeated(text):
    """`AA...B=` has bits set that base64 cannot carry: another spelling of the same key."""
    with pytest.raises(ValueError, match="44 characters of base64") as refused:
        from_base64(text)
    assert not text or text not in str(refused.value)


def test_keys_in_text():
    raw = bytes(range(32))
    assert from_base64(to_base64(raw)) == raw
    assert from_hex(raw.hex()) == raw
    for text in ("", "0" * 63, "0" * 66, "g" * 64, " " + "0" * 63, "0x" + "0" * 62):
        with pytest.raises(ValueError, match="64 hexadecimal digits"):
            from_hex(text)
