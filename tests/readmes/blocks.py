"""The commands of READMEs: lines of their `sh` blocks, and none that hides elsewhere."""

import re
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
PARTS = ("docker", "netem", "tests", "transports", "wire")
READMES = {
    str(path.relative_to(CHECKOUT)): path.read_text()
    for path in (
        CHECKOUT / "README.md",
        *sorted(p for part in PARTS for p in (CHECKOUT / part).rglob("README.md")),
    )
}
SHELL = "sh"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = (
    "apt-get", "cd", "containerlab", "docker", "docker-compose", "fabriclab", "git", "jq", "ls",
    "make", "pip", "pytest", "python", "python3", "sh", "sudo", "tshark", "wireshark",
)  # fmt: skip
BEGINS = re.compile(rf"(?:\$ )?(?:{'|'.join(PROGRAMS)}) ")


def commands(text):
    """Return the commands of a README in order, without their comments."""
    return [
        bare(line)
        for language, block in FENCE.findall(text)
        if language == SHELL
        for line in block.splitlines()
        if bare(line)
    ]


def bare(line):
    """Return a line without the comment behind it: nothing that is quoted has a ` #` in it."""
    return re.split(r"(?:^|\s)#\s", line, maxsplit=1)[0].strip()


def hidden(text):
    """Return lines that begin as commands do and stand in no such block."""
    others = [block for language, block in FENCE.findall(text) if language != SHELL]
    fenced = [line for block in others for line in block.splitlines()]
    outside = FENCE.sub("", text).splitlines()
    indented = [line.removeprefix("    ") for line in outside if line.startswith("    ")]
    return [line for line in fenced + indented if BEGINS.match(line)]
