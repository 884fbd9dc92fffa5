"""Our side of several runs, one after the other: a command of a host in a lab.

    python -m tests.interop.roce.play ADDRESS PEER RUN ...      RUN as str(runs.Run)

Prints a line for each run. A wrong byte ends it with 1; what was sent again is no fault here,
where links lose.
"""

import sys

import trio

from netem.verbs import open_device
from tests.interop.roce import examples, perftest
from tests.interop.roce.cable import GUEST, OURS
from tests.interop.roce.ours import End
from tests.interop.roce.runs import product


async def main(own: str, peer: str, names: list[str]) -> int:
    family = 6 if ":" in own else 4
    OURS[family], GUEST[family] = own, peer
    End.patience = 15  # 134 ms: here something is lost
    by_name = {str(run): run for run in product()}
    is_right = True
    for number, run in enumerate(map(by_name.__getitem__, names)):
        ours = examples if run.tool.startswith("ibv_") else perftest
        async with open_device(own, seed=number) as device:
            end = ours.player(device, run)
            await end.play()
            end.look()
            # The peer may have lost our last ACK, and asks again until it has it.
            await trio.sleep(1.0)
            again = sum(device.retransmissions.values())
        sys.stdout.write(f"{run}: {len(end.wrong)} wrong, {again} times back\n")
        sys.stdout.write("".join(f"  {line}\n" for line in end.wrong))
        sys.stdout.flush()
        is_right &= not end.wrong
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(trio.run(main, sys.argv[1], sys.argv[2], sys.argv[3:]))
