"""From a planned tunnel to a machine with its keys, peers and routes."""

from collections.abc import Callable
from random import Random

from netem.topology.overlay_plan import TunnelPlan
from transports.clock import Ns
from transports.overlay.allowed_ips import Prefix
from transports.overlay.endpoint import Endpoint
from transports.overlay.inner import Ecn
from transports.overlay.keys import PrivateKey, Secret, from_base64
from transports.overlay.state import TunnelConfig
from transports.overlay.tunnel import Tunnel


def tunnel_of(
    plan: TunnelPlan, rng: Random, entropy: Callable[[int], bytes], *, epoch: Ns
) -> Tunnel:
    """Return the tunnel, as it is before its first packet. Keepalives begin with time 0."""
    config = TunnelConfig(
        mtu=plan.mtu,
        limits=plan.limits.made(),
        ecn=Ecn(plan.ecn),
        copy_dscp=plan.copy_dscp,
        key_log=plan.secrets,
    )
    tunnel = Tunnel(config, rng, entropy, epoch=epoch)
    tunnel.set_private_key(PrivateKey(from_base64(plan.private_key)))
    tunnel.set_listen_port(plan.listen_port)
    for peer in plan.peers:
        public = from_base64(peer.public_key)
        tunnel.add_peer(public)
        if peer.preshared_key:
            tunnel.set_preshared_key(public, Secret(from_base64(peer.preshared_key)))
        if peer.endpoint:
            tunnel.set_endpoint(public, Endpoint.parse(peer.endpoint))
        for prefix in peer.allowed_ips:
            tunnel.add_allowed_ip(public, Prefix.parse(prefix))
        tunnel.set_persistent_keepalive(public, peer.keepalive, 0)
    return tunnel


def names_of(plan: TunnelPlan) -> dict[bytes, str]:
    """Return what the peers are called, by their keys."""
    return {from_base64(peer.public_key): peer.name for peer in plan.peers}
