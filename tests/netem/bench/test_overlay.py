"""The benchmarks of tunnels measure what they say."""

import pytest

from netem.bench import overlay


@pytest.mark.slow
def test_handshakes_stand_beside_four_x25519_operations():
    (figure,) = overlay.overlay_handshakes(rounds=1)
    assert figure.name == "overlay-handshakes"
    assert figure.ceiling.name == "four X25519 operations"
    assert 0 < figure.ratio < 1


@pytest.mark.slow
@pytest.mark.needs("netns", "tap")
def test_a_flow_comes_through_a_tunnel_of_ours(monkeypatch):
    monkeypatch.setattr(overlay, "DURATION_S", 0.2)
    ((kind, flow),) = overlay.flows(1420, ["ours"])
    assert kind == "ours"
    assert flow.bits_per_s > 0
    assert flow.cpu_s_per_gb > 0
