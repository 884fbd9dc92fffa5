"""A container engine of its own for the tests: in a network namespace, with its own folders.

Its bridges, rules and routes are nowhere else. It reaches no registry, and needs none.
"""

import os
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path

LIMIT_S = 300
READY_LIMIT_S = 60


class Engine:
    """What a person types, for one engine."""

    def __init__(self, socket):
        self.env = os.environ | {"DOCKER_HOST": f"unix://{socket}"}

    def docker(self, *words, check=True):
        """Run the docker client, by its full path: others may be first in the PATH."""
        return self._run(["/usr/bin/docker", *words], check=check)

    def compose(self, folder, *words, check=True):
        """Run docker-compose in the folder of a lab."""
        return self._run(["docker-compose", "--no-ansi", *words], cwd=folder, check=check)

    def _run(self, command, *, cwd=None, check):
        done = subprocess.run(
            command,
            env=self.env,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
        return done


@contextmanager
def running(folder: Path):
    """Have an engine while the context lasts; its files are in `folder`, and go with it."""
    name = f"fabriclab-docker-{os.getpid()}"
    socket, pid = folder / "docker.sock", folder / "docker.pid"
    namespace = f"/run/netns/{name}"
    _ip("netns", "add", name)
    log = (folder / "dockerd.log").open("wb")
    try:
        _ip("-n", name, "link", "set", "lo", "up")
        # Not `ip netns exec`: it hides the cgroup mounts, and the daemon refuses to start.
        # It ends with the tests, however they end.
        command = ["setpriv", "--pdeathsig", "TERM", "nsenter", f"--net={namespace}"]
        command += ["dockerd", "-H", f"unix://{socket}"]
        command += ["--data-root", folder / "data", "--exec-root", folder / "exec"]
        command += ["--pidfile", pid, "--bip", "10.200.0.1/24"]
        command += ["--ipv6", "--fixed-cidr-v6", "fd00:d0::/64"]
        daemon = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            engine = Engine(socket)
            _await_ready(engine, daemon, folder / "dockerd.log")
            yield engine
        finally:
            daemon.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                daemon.wait(60)
            daemon.kill()
            daemon.wait()
    finally:
        log.close()
        _ip("netns", "del", name)
        _unmount_below(folder)
        shutil.rmtree(folder / "data", ignore_errors=True)


def _await_ready(engine, daemon, log):
    deadline = time.monotonic() + READY_LIMIT_S
    while engine.docker("info", check=False).returncode:
        if daemon.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(log.read_text()[-2000:])
        time.sleep(0.1)


def _unmount_below(folder):
    """Take away mounts that an engine left, if it was killed."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "-l", mount], check=False)


def _ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)
