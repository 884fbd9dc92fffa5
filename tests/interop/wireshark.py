"""tshark and capinfos, as these tests ask them."""

import os
import shutil
import subprocess

# Checksums are looked at. The dissector guesses what a payload might be, and calls its guess
# malformed: that is off.
PLAIN = (
    "-n",
    *("-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"),
    *("-o", "infiniband.try_heuristic_first:FALSE"),
    *("-o", "udp.ignore_ipv6_zero_checksum:TRUE", "--disable-protocol", "rpcordma"),
)
LIMIT_S = 120


def tshark(path, fields, *options, home=None):
    """Return one dict for each packet, from field name to text; `home` has whose plug-ins."""
    env = os.environ if home is None else os.environ | {"HOME": str(home)}
    wanted = [word for field in fields for word in ("-e", field)]
    command = [shutil.which("tshark"), *PLAIN, *options, "-r", str(path), "-T", "fields"]
    done = subprocess.run(
        [*command, *wanted],
        env=env,
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT_S,
    )
    return [
        dict(zip(fields, line.split("\t"), strict=True)) for line in done.stdout.splitlines()
    ]


def capinfos(path):
    """Return what capinfos says of a file."""
    command = [shutil.which("capinfos"), "-M", str(path)]  # numbers whole, not 10 k
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_S)
    return done.stdout
