"""Results of several runs side by side, as RESULTS.md has them.

fabriclab conform --target node --slow --json > node.json
fabriclab conform --target rxe --slow --json > rxe.json
python -m netem.conform.results node.json rxe.json > netem/conform/RESULTS.md
"""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from netem.conform.report import clause_verdicts, markdown

_ABOUT = {
    "sim": "our machine in the simulator",
    "node": "nodes of ours: the same machines on sockets, in real time",
    "kernel": "Linux's own SRv6, in a namespace whose routes a case makes",
    "wireguard-go": "wireguard-go behind a TUN, in real time; not its longest waits",
    "rxe": "Soft-RoCE (rdma_rxe) of Linux 6.1 in a QEMU guest, driven through libibverbs",
}


def page(files: Sequence[Path]) -> str:
    """Return the page of runs whose `--json` is in these files."""
    runs = [json.loads(file.read_text()) for file in files]
    lines = [
        "# Results",
        "",
        "Made by `python -m netem.conform.results` (see there). Columns:",
        "",
    ]
    for run in runs:
        counts = Counter(str(verdict) for verdict in clause_verdicts(run["cases"]).values())
        told = ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common())
        about = _ABOUT.get(run["target"], "an endpoint")
        lines.append(f"* {run['target']}, {about}: {len(run['cases'])} cases; clauses: {told}")
    lines += [
        "",
        "A clause fails where one of its cases does. Verdicts are explained in README.md.",
        "",
    ]
    return "\n".join([*lines, markdown(runs)])


if __name__ == "__main__":
    sys.stdout.write(page([Path(name) for name in sys.argv[1:]]))
