"""Running `fabriclab` from outside, as its user does, and looking at what it leaves."""

import contextlib
import json
import os
import subprocess
import sys
import time
import zlib
from pathlib import Path

from netem.analysis.reader import read_capture
from wire.codec import DecodeError
from wire.roce.packet import locate

FABRICLAB = (sys.executable, "-P", "-m", "netem")
LIMIT_S = 120


def fabriclab(*argv, cwd, within=(), limit_s=LIMIT_S, **kwargs):
    """Run a verb to its end, by the command `within`; output and error are kept apart."""
    return subprocess.run(
        [*within, *FABRICLAB, *map(str, argv)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
        **kwargs,
    )


def start(*argv, cwd):
    """Start a verb in a session of its own; the caller ends it.

    It hears SIGINT, which the background command of a shell, and what it starts, does not.
    """
    return subprocess.Popen(
        ["env", "--default-signal=INT", *FABRICLAB, *map(str, argv)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def result(folder):
    """Return run.json."""
    return json.loads((Path(folder) / "run.json").read_text())


def blames_host(run):
    """Say whether a run is undecided because this host was too late for a lab about time."""
    return "this host was too slow" in run["why"] or "timers" in run["why"]


def captured(folder):
    """Return the frames of a run's capture, in order."""
    with (Path(folder) / "lab.pcapng").open("rb") as file:
        return list(read_capture(file))


def is_corrupted(frame):
    """Say whether an impairment of ours changed its bytes."""
    return any(remark.startswith("corrupted") for remark in frame.remarks)


def is_trimmed(frame):
    """Say whether a switch has cut it: then there is no ICRC left."""
    return any(remark.startswith("trimmed") for remark in frame.remarks)


def inside(frame):
    """Return a frame without its outer IPv6 header and SRH, if it has them. RFC 8754."""
    if frame[12:14] != b"\x86\xdd":
        return frame
    following, start = frame[20], 54
    if following == 43 and frame[56:57] == b"\x04":
        following, start = frame[54], 54 + 8 + 8 * frame[55]
    if following not in {4, 41}:
        return frame
    ethertype = b"\x08\x00" if following == 4 else b"\x86\xdd"
    return frame[:12] + ethertype + frame[start:]


def wrong_icrcs(frames):
    """Count RoCE frames whose ICRC is not what these few lines make of the bytes.

    Written down from IBTA vol. 1, annex A17, apart from the product: eight bytes of ones, the
    headers with every field that a router may change as ones, the rest as it is. What is led by
    SRv6 has its ICRC over the inner packet.
    """
    wrong = checked = 0
    for frame in frames:
        if is_corrupted(frame) or is_trimmed(frame):
            continue
        whole = inside(bytes(frame.frame))
        try:
            ip, udp, bth, icrc = locate(whole)
        except DecodeError:
            continue
        packet = bytearray(whole[ip:icrc])
        udp, bth = udp - ip, bth - ip
        if packet[0] >> 4 == 4:
            packet[1] = packet[8] = packet[10] = packet[11] = 0xFF
        else:
            packet[0] |= 0x0F
            packet[1] = packet[2] = packet[3] = packet[7] = 0xFF
        packet[udp + 6] = packet[udp + 7] = packet[bth + 4] = 0xFF
        want = zlib.crc32(8 * b"\xff" + packet).to_bytes(4, "little")
        wrong += want != whole[icrc : icrc + 4]
        checked += 1
    return wrong, checked


def wrong_checksums(frames):
    """Count IPv6 frames with TCP, UDP or ICMPv6 inside whose checksum does not add up.

    RFC 8200, section 8.1: with the pseudo-header, the ones' complement sum is all ones. A UDP
    checksum of zero is none.
    """
    wrong = checked = 0
    for frame in (frame.frame for frame in frames if not is_corrupted(frame)):
        if frame[12:14] != b"\x86\xdd" or frame[20] not in {6, 17, 58}:
            continue
        length = int.from_bytes(frame[18:20], "big")
        body = frame[54 : 54 + length]
        if frame[20] == 17 and body[6:8] == bytes(2):
            continue
        text = frame[22:54] + length.to_bytes(4, "big") + bytes([0, 0, 0, frame[20]]) + body
        text += bytes(len(text) % 2)
        total = sum(int.from_bytes(text[at : at + 2], "big") for at in range(0, len(text), 2))
        wrong += total % 0xFFFF != 0
        checked += 1
    return wrong, checked


def processes_of(folder):
    """Return the pids of processes whose command line or log names the run folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            for fd in (entry / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(folder) in str(fd.readlink()):
                        found.append(int(entry.name))
                        break
    return found


def wait_until(holds, what, limit_s=20.0):
    """Wait for a condition, not for a while."""
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline, f"not in {limit_s} s: {what}"
        os.sched_yield()
