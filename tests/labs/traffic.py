"""Traffic of ordinary programs between the nodes of a lab that is up: numbered datagrams.

The programs are run by `fabriclab exec`, as a user runs his own.
"""

import contextlib
import json

from tests.labs.commands import fabriclab, start

PORT = 7777

# Sends datagrams 0, 1, 2 ... to host and port, so many a second; waits for nothing.
SEND = """
import socket, sys, time
host, port, count, pps, size = sys.argv[1], *map(int, sys.argv[2:])
family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
sock = socket.socket(family, kind)
begin = time.monotonic()
for number in range(count):
    while (left := begin + number / pps - time.monotonic()) > 0:
        time.sleep(left)
    sock.sendto(number.to_bytes(4, "big") + bytes(size - 4), address)
"""
# Says that it is there, receives until nothing comes for a while, prints the numbers seen.
RECEIVE = """
import json, socket, sys
port, idle = int(sys.argv[1]), float(sys.argv[2])
sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
sock.bind(("", port))
print("ready", flush=True)
seen = []
sock.settimeout(60)
try:
    while True:
        seen.append(int.from_bytes(sock.recv(2048)[:4], "big"))
        sock.settimeout(idle)
except TimeoutError:
    pass
print(json.dumps(seen))
"""


def python(lab, node, code, *argv, cwd):
    """Run a Python program in a node to its end; return what it printed."""
    ran = fabriclab("exec", "--lab", lab, node, "python3", "-c", code, *argv, cwd=cwd)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def send(lab, node, host, count, *, pps=2000, size=100, port=PORT, cwd):
    """Send numbered datagrams."""
    python(lab, node, SEND, host, port, count, pps, size, cwd=cwd)


@contextlib.contextmanager
def receiving(lab, node, *, idle=1.5, port=PORT, cwd):
    """Receive in a node; the list that this gives has the numbers seen, at the end."""
    seen = []
    argv = ("exec", "--lab", lab, node, "python3", "-c", RECEIVE, port, idle)
    with start(*argv, cwd=cwd) as process:
        try:
            assert process.stdout.readline() == "ready\n", process.stderr.read()
            yield seen
            out, err = process.communicate(timeout=70)
            assert process.returncode == 0, out + err
            seen += json.loads(out)
        finally:
            process.kill()


def exchange(lab, source, target, count, *, cwd, idle=1.5, **how):
    """Send from one node to another; return which numbers arrived, in their order."""
    with receiving(lab, target, idle=idle, cwd=cwd) as seen:
        send(lab, source, target, count, cwd=cwd, **how)
    return seen
