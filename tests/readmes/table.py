"""Of each command that cannot be run as it stands: what is run for it, or which test does that.

Whatever is not here is run as it is written.
"""

from tests.labs.forms import FORMS, RUNS

# README: files that its commands read, by their text; the text of `mine` is the README's own
GIVEN = {
    "netem/conform/README.md": {"mine/own.case": "case roce/R16"},
}
# README: what a reader has done before
BEFORE = {
    "netem/capture/README.md": "fabriclab sim two-hosts --out fabriclab-runs/two-hosts-1",
    "netem/experiments/README.md": "ln -s {checkout}/netem netem",
    "netem/wireshark/README.md": "fabriclab sim mrc-demo --out run && cp run/lab.pcapng .",
}
CHANGED = {
    # What it clones is what is to be tested.
    "git clone <this repository> fabriclab": "git clone -q {checkout} fabriclab",
    # The environment that is already there: `make demo` is run elsewhere.
    ". .venv/bin/activate": ". {environment}/bin/activate",
    # A file that every user has, and this one has not.
    "fabriclab validate mylab.yaml": (
        "cp netem/labs/two-hosts/lab.yaml mylab.yaml && fabriclab validate mylab.yaml"
    ),
    "fabriclab check capture.pcap": "fabriclab check runs/verbs/lab.pcapng",
    # All groups take minutes.
    "fabriclab bench": "fabriclab bench codec",
    # RUN is the folder of a run that came before.
    "jq -r 'select(.waiting) | [.ts_ns, .waiting] | @tsv' RUN/samples.jsonl": (
        "jq -r 'select(.waiting) | [.ts_ns, .waiting] | @tsv' "
        "fabriclab-runs/dcqcn-incast-1/samples.jsonl"
    ),
    (
        """jq -r 'select(.node == "h1") | [.ts_ns, .rate, .target, .alpha_ppm] | @tsv' """
        "RUN/samples.jsonl"
    ): (
        """jq -r 'select(.node == "h1") | [.ts_ns, .rate, .target, .alpha_ppm] | @tsv' """
        "fabriclab-runs/dcqcn-incast-1/samples.jsonl"
    ),
    # Thirty runs of minutes; its small sister has what is shown here, too.
    "python -m netem.experiments e08 --show --times": (
        "python -m netem.experiments e08-small --seeds 1 --show --times"
    ),
    # "For ever" is up to the lab's limit.
    "fabriclab sim pfc-watchdog --set defaults.switch.watchdog=none": (
        "fabriclab sim pfc-watchdog --set defaults.switch.watchdog=none --set limit=4ms"
    ),
}

DEMO = "tests/labs/test_runs.py::test_demo_tells_the_story"
EXPERIMENTS = "tests/netem/experiments/test_cases.py::test_an_experiment_meets_what_it_expects"
READY = (
    "tests/interop/docker/test_labs.py::test_a_ready_lab_ends_with_its_verdict_and_a_capture"
)
IMAGE = "tests/interop/docker/test_labs.py::test_the_image_is_small_and_soon_made"
GUEST = "tests/interop/guest/test_kernel_peer.py::"
TABLES = (
    "tests/netem/bench/test_perftest.py::test_two_sides_answer_each_other_as_often_as_asked"
)
MRC = "tests/bench/test_mrc_counts.py"
# ... or the file that runs it, where it is no test: `.ci/run`
ELSEWHERE = {
    "make demo": DEMO,
    "make test": ".ci/run",
    "make experiments": EXPERIMENTS,
    "python -m netem.experiments e06": EXPERIMENTS,  # it writes the page that is committed
    "fabriclab demo": DEMO,
    "fabriclab bench rc": TABLES,
    "fabriclab bench mrc": MRC,
    "fabriclab bench mrc-write": MRC,
    "fabriclab bench mrc-switch": MRC,
    "fabriclab bench mrc-paths": MRC,
    "fabriclab bench mrc-loss": MRC,
    "fabriclab run rc-verbs --set transports.rc.connect=cm": (
        "tests/labs/test_runs.py::test_hosts_connect_by_the_communication_manager"
    ),
    "fabriclab run rc-over-overlay --set overlay.secrets=false": (
        "tests/labs/test_overlay.py::test_the_capture_opens_decrypted_if_the_lab_says_so"
    ),
    "fabriclab run overlay-under-load": (
        "tests/labs/test_overlay.py::test_a_peer_gets_in_while_a_stranger_floods"
    ),
    "fabriclab capture --merge fabriclab-runs/two-hosts-1": (
        "tests/labs/test_endings.py::test_nothing_is_left_after_the_launcher_is_killed"
    ),
    "fabriclab conform": (
        "tests/netem/conform/test_faults.py::test_our_machine_passes_every_case"
    ),
    "fabriclab conform --target node": (
        "tests/netem/conform/test_node.py::test_a_node_keeps_what_the_simulator_keeps"
    ),
    "fabriclab conform --target rxe": (
        "tests/interop/test_conform.py"
        "::test_soft_roce_keeps_its_clauses_but_for_the_known_deviation"
    ),
    "fabriclab conform --target wireguard-go --filter 'wg/*'": (
        "tests/interop/test_conform.py::test_wireguard_go_keeps_handshakes_and_data"
    ),
    "fabriclab conform --target 192.0.2.2 --iface eth1": (
        "tests/netem/conform/test_foreign.py"
        "::test_a_server_of_perftest_is_judged_by_what_it_takes"
    ),
    "fabriclab conform --target 192.0.2.2 --iface eth1 --by cm --port 7174": (
        "tests/netem/conform/test_foreign_cm.py::test_a_node_that_listens_is_judged_by_sends"
    ),
    "apt-get install qemu-system-x86": "tests/interop/install-judges",
    "fabriclab run kernel-peer": GUEST + "test_a_guest_and_a_program_play_both_ways_round",
    "fabriclab run kernel-peer --set defaults.host.family=ipv4": (
        GUEST + "test_over_ipv4_with_loss_both_recover"
    ),
    "fabriclab run kernel-peer --set defaults.link.loss=1%": (
        GUEST + "test_over_ipv4_with_loss_both_recover"
    ),
    "docker build -f docker/Dockerfile -t fabriclab .": IMAGE,
    "cd docker/labs/roce-pair": READY,
    "docker compose up": READY,
    "docker compose up --exit-code-from judge": READY,
    "ls captures/*/lab.pcapng": READY,
    "docker compose down -v": READY,
} | {
    " ".join(("fabriclab run", lab, *FORMS[form])): (
        "tests/labs/test_runs.py::test_a_built_in_lab_meets_its_expectations"
    )
    for lab, form in (run.values for run in RUNS if not run.marks)
}

# Commands that end with 1, as comments and READMEs say, and the words they do it with: what
# is changed on purpose breaks what the lab as it stands expects.
FAILS = {
    f"fabriclab sim {command}": words
    for command, words in {
        "dcqcn-incast --set transports.rc.dcqcn=none": "pauses < 20: fail",
        "dcqcn-incast --set transports.rc.ecn=off": "pauses < 20: fail",
        "ecmp-polarisation --set defaults.switch.hash_seed=own": (
            "paths_used <= 16: fail (got 24)"
        ),
        "ecmp-polarisation --set defaults.switch.balance.mode=spray": (
            "paths_used <= 16: fail (got 24)"
        ),
        "gid-and-classes --set transports.bulk.dscp=27": "no_retransmissions: fail",
        "gid-and-classes --set transports.bulk.ecn=off": "marked > 10: fail (got 0)",
        "incast-ecn --set transports.rc.tc=0": "marked > 100: fail (got 0)",
        "incast-trim --set defaults.switch.queue.trim=none": "trimmed > 0: fail (got 0)",
        (
            "mrc-incast --set defaults.switch.queues.0.trim=none "
            "--set transports.mrc.trimming=false"
        ): "dropped == 0: fail",
        (
            "overlay-rekey --set overlay.timers.reject_after_time=2100ms "
            '--set "topology.links[1].delay=500ms" --set transports.rc.timeout=20 '
            '--set "workload[0].count=4"'
        ): "tunnel_refused == 0: fail",
        "pfc-head-of-line --set workload[0].size=1KiB": "goodput of flow 3 < 3700000000: fail",
        "pfc-pause --set defaults.switch.queues.3.pfc.headroom=2KiB": "dropped == 0: fail",
        "pfc-pause --set defaults.switch.queues.3.pfc.xoff=512KiB": "pauses > 0: fail (got 0)",
        "pfc-watchdog --set defaults.switch.watchdog=none": "the limit of 4ms was reached",
        "pfc-watchdog --set defaults.switch.watchdog.action=forward": "dropped > 0: fail",
        "psn-gap --set transports.rc.window=4": "retransmissions == 7: fail (got 4)",
        (
            'psn-gap --set "faults[0].where={op: WRITE_LAST, retransmission: false}"'
        ): "naks == 1: fail (got 0)",
        "two-sites-40km --set fabric.distance=400km": "goodput of flow 1 > 2000000000: fail",
        "two-sites-40km --set transports.hall.window=128": (
            "goodput of flow 0 < 2000000000: fail"
        ),
    }.items()
}
