"""What takes minutes against wireguard-go, each played by a process of its own, side by side.

python -m tests.interop.overlay.waits NAME     plays one and prints what happened, as JSON
"""

import json
import subprocess
import sys

from tests.interop.overlay.ours import INNER_OURS, INNER_THEIRS, echo
from tests.interop.overlay.peers import Go
from tests.transports.overlay.world import ip
from transports.clock import S
from transports.overlay.events import SessionBegun


def they_renew(peer):
    """Their kernel sends an echo request each second, and theirs is the session."""
    ours = peer.facing()
    said = peer.ping(ours, "-i", "1", "-c", "126", "-q", limit=150)
    return {"loss": " 0% packet loss" in said, **about(ours)}


def we_renew(peer):
    """We do, and it is ours."""
    ours = peer.facing()
    lost = []
    for sequence in range(126):
        if not ours.ping(sequence, limit=5 * S):
            lost.append(sequence)
        ours.drive(lambda due=(sequence + 1) * S: ours.now >= due)
    return {"loss": not lost, **about(ours)}


def keepalives(peer):
    """Data that nobody answers: first ours, then theirs."""
    ours = peer.facing()
    ours.ping(1)
    ours.answers = False
    ours.tunnel.send(ip(INNER_OURS, INNER_THEIRS))
    first = ours.now
    ours.idle(12 * S)
    second = ours.now
    peer.ping(ours, "-c", "1", "-W", "12")
    return {"first": first, "second": second, **about(ours)}


def silence(peer):
    """We fall silent in the middle: 15 s later they begin anew, 20 times, and give up."""
    ours = peer.facing()
    ours.ping(1)
    with peer.start("ping", "-i", "1", "-c", "6", INNER_OURS):
        ours.idle(3 * S)
        deaf = ours.now
        while ours.now < deaf + 135 * S:
            ours.overhear()
    return {"deaf": deaf, **about(ours)}


def idleness(peer):
    """Longer than a session may live: the next packet makes another, whoever sends it."""
    ours = peer.facing()
    first = ours.ping(1)
    ours.idle(200 * S)
    ours.tunnel.send(echo(8, 2))
    second = ours.drive(lambda: 2 in ours.replies)
    ours.idle(200 * S)
    said = peer.ping(ours, "-c", "1")
    return {"answered": [first, second, " 0% packet loss" in said], **about(ours)}


def about(ours):
    return {
        "log": [entry[:4] for entry in ours.log],
        "roles": [e.role.name for e in ours.events if isinstance(e, SessionBegun)],
        "refused": {reason.name: count for reason, count in ours.tunnel.refused.items()},
    }


STORIES = {one.__name__: one for one in (they_renew, we_renew, keepalives, silence, idleness)}


class Playing:
    """A story that is being played."""

    def __init__(self, name):
        self._process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, name], stdout=subprocess.PIPE, text=True
        )

    def told(self, limit_s):
        out, _ = self._process.communicate(timeout=limit_s)
        assert self._process.returncode == 0
        return json.loads(out)

    def end(self):
        self._process.kill()
        self._process.communicate()


def main():
    with Go() as peer, peer.present():
        peer.reset()
        sys.stdout.write(json.dumps(STORIES[sys.argv[1]](peer)))


if __name__ == "__main__":
    main()
