"""`fabriclab conform`: which clauses an endpoint keeps, ours or somebody else's."""

import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from netem.cli import options, show

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from netem.conform.clauses import Clause
    from netem.conform.endpoint import Target
    from netem.conform.notation import Case
    from netem.conform.reach import Whom
    from netem.conform.suite import Result


@dataclass(frozen=True, slots=True)
class _Wish:
    """What is to be done with the results."""

    target: str
    where: Path
    slow: bool
    strict: bool
    junit: Path | None
    markdown: Path | None
    as_json: bool


@click.command()
@click.option(
    "--target", default="sim", metavar="NAME", help="Who is judged.", show_default=True
)
@click.option("--iface", default="", help="Where an address is reached; needs CAP_NET_RAW.")
@click.option(
    "--by",
    "tool",
    default="ib_write_bw",
    show_default=True,
    help="How it is joined: perftest's server there, or cm.",
)
@click.option(
    "--port", default=0, help="Its port: of TCP (18515), with cm that of rdma_cm (7174)."
)
@click.option(
    "--filter", "patterns", multiple=True, metavar="GLOB", help="Cases or clauses: 'roce/R*'."
)
@click.option("--list", "listing", is_flag=True, help="List clauses and their cases.")
@click.option("--strict", is_flag=True, help="Clauses that say SHOULD count as failures, too.")
@click.option("--slow", is_flag=True, help="Also cases that wait for long.")
@click.option(
    "--cases",
    "folder",
    type=click.Path(path_type=Path),
    help="Cases of your own: files *.case in this folder, in place of the built-in ones.",
)
@click.option("--junit", type=click.Path(path_type=Path), help="Write the result as JUnit XML.")
@click.option("--markdown", type=click.Path(path_type=Path), help="Write a table of clauses.")
@click.option("--dry-run", is_flag=True, help="Print what the cases would say; run nothing.")
@options.output_options
@options.exit_codes
def command(
    *,
    target: str,
    iface: str,
    tool: str,
    port: int,
    patterns: tuple[str, ...],
    listing: bool,
    strict: bool,
    slow: bool,
    folder: Path | None,
    junit: Path | None,
    markdown: Path | None,
    dry_run: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """Judge an endpoint, clause by clause.

    A scripted peer sends, and looks at what it is answered. Targets: sim, our machine in
    virtual time; node, nodes of ours on sockets; rxe, Linux's Soft-RoCE in a guest; kernel,
    Linux's own SRv6; wireguard-go; or an address that --iface reaches, where a server of
    perftest runs in a loop, or one of rdma_cm listens (--by cm). Each case leaves a folder with
    its capture and its story. Exit code 1 where a clause that says MUST is broken.

    Example:  fabriclab conform --filter 'roce/R*' --markdown matrix.md
    """
    if listing:
        _list(folder, patterns, as_json)
        return
    cases = _chosen(folder, patterns)
    if dry_run:
        _print_cases(cases)
        return
    with ExitStack() as at_end, ExitStack() as waiting:
        at_end.callback(
            signal.signal,
            signal.SIGTERM,
            signal.signal(signal.SIGTERM, signal.default_int_handler),
        )
        # Whoever asks for an end before there is something to tell of, gets it told.
        asked = (signal.SIGINT, signal.SIGTERM)
        waiting.callback(signal.pthread_sigmask, signal.SIG_UNBLOCK, asked)
        signal.pthread_sigmask(signal.SIG_BLOCK, asked)
        whom = _whom(target, iface, tool, port)
        _check_writable(junit, markdown)
        wish = _Wish(target, _folder(target, out), slow, strict, junit, markdown, as_json)
        try:
            waiting.close()
            code = _run(cases, whom, wish)
        except KeyboardInterrupt:
            code = _tell(cases, [], wish, interrupted=True)
    sys.exit(code)


def _run(cases: "Sequence[Case]", whom: "Whom", wish: _Wish) -> int:
    from netem.conform.reach import make_ready, reach

    make_ready(whom)
    return reach(whom, lambda endpoint: _judge(cases, endpoint, wish))


def _whom(target: str, iface: str, tool: str, port: int) -> "Whom":
    from netem.conform.reach import NoTargetError, Whom

    whom = Whom(target, iface, tool, port)
    try:
        whom.check()
    except NoTargetError as error:
        raise click.UsageError(str(error)) from error
    return whom


def _folder(target: str, out: Path | None) -> Path:
    from netem.capture.runfolder import RunFolder

    where = RunFolder.create(f"conform-{target}", out).path.resolve()
    (where / "nodes").rmdir()  # of a lab: here each case has a folder
    return where


def _check_writable(*files: Path | None) -> None:
    """Leave with a line for a result that could not be written: now, not after the cases."""
    for file in files:
        # What is there and no file, such as a pipe, is not to be opened twice.
        if file is None or (file.exists() and not (file.is_file() or file.is_dir())):
            continue
        was_there = file.exists()
        try:
            file.open("a").close()
        except OSError as error:
            _complain_of(file, error)
            sys.exit(options.WRONG_USAGE)
        if not was_there:
            file.unlink()


def _complain_of(file: Path, error: OSError) -> None:
    options.complain(f"{file} cannot be written: {error.strerror or error}; name another")


def _chosen(
    folder: Path | None, patterns: Sequence[str], *, may_be_none: bool = False
) -> "list[Case]":
    from netem.conform import suite
    from netem.conform.notation import NotationError

    try:
        every = suite.from_folder(folder) if folder is not None else suite.built_in()
        return suite.choose(every, patterns)
    except (NotationError, suite.NoCaseError) as error:
        if may_be_none and isinstance(error, suite.NoCaseError):
            return []
        options.complain(str(error))
        sys.exit(options.WRONG_USAGE)


@options.exit_codes
def _judge(
    cases: "Sequence[Case]", endpoint: "AbstractContextManager[Target]", wish: _Wish
) -> int:
    """Play the cases, report, and return the exit code; in the sandbox, where there is one."""
    from netem.conform import suite
    from netem.conform.endpoint import StageError
    from netem.conform.notation import NotationError

    results: list[Result] = []
    interrupted = False
    try:
        with endpoint as opened, show.progress("conform", "cases") as progress:
            for result in suite.run(cases, opened, wish.where, slow=wish.slow):
                results.append(result)
                progress(len(results), len(cases))
    except NotationError as error:
        options.complain(str(error))
        return options.WRONG_USAGE
    except (StageError, PermissionError) as error:
        options.complain(str(error))
        return options.HOST_CANNOT
    except KeyboardInterrupt:  # also while the endpoint is brought up, or put down
        interrupted = True
    return _tell(cases, results, wish, interrupted=interrupted)


def _tell(
    cases: "Sequence[Case]", done: "Sequence[Result]", wish: _Wish, *, interrupted: bool
) -> int:
    """Say what came out, also where Ctrl-C or SIGTERM cut it short; return the exit code."""
    from netem.conform import report
    from netem.conform.script import Verdict
    from netem.conform.suite import Result

    results = [*done]
    if interrupted:
        options.complain(f"interrupted after {len(done)} of {len(cases)} cases")
        left = cases[len(done) :]
        results += [Result(case, Verdict.UNTESTED, "interrupted") for case in left]
    told = report.as_json(results, wish.target, interrupted=interrupted)
    code = report.exit_code(results, strict=wish.strict, interrupted=interrupted)
    wanted = {}
    if wish.junit is not None:
        wanted[wish.junit] = report.junit(results, wish.target)
    if wish.markdown is not None:
        wanted[wish.markdown] = report.markdown([told])
    for file, text in wanted.items():
        try:
            file.write_text(text)
        except OSError as error:  # since it was looked at
            _complain_of(file, error)
            code = options.WRONG_USAGE
    if wish.as_json:
        options.print_json(told)
    else:
        _print(results, wish.target, wish.where)
    return code


def _list(folder: Path | None, patterns: Sequence[str], as_json: bool) -> None:
    from netem.conform.clauses import clauses, matching

    meant = {each.id for pattern in patterns for each in matching(pattern)}
    cases = _chosen(folder, patterns, may_be_none=bool(meant))
    by_clause: dict[str, list[str]] = {}
    for case in cases:
        for name in case.clauses:
            by_clause.setdefault(name, []).append(case.id)
    chosen = [
        each
        for each in clauses().values()
        if not patterns or each.id in by_clause or each.id in meant
    ]
    if as_json:
        rows = [
            {
                "id": each.id,
                "strength": each.strength.value,
                "role": each.role,
                "section": each.section,
                "text": each.text,
                "cases": by_clause.get(each.id, []),
                "tests": list(each.tests),
            }
            for each in chosen
        ]
        options.print_json({"clauses": rows})
        return
    show.table(
        "",
        ("clause", "demands", "of", "cases", "what"),
        (
            (c.id, c.strength, c.role, _proofs(by_clause.get(c.id, ()), c.tests), _about(c))
            for c in chosen
        ),
    )


def _proofs(cases: Sequence[str], tests: Sequence[str]) -> str:
    return str(len(cases)) if cases else "by tests" if tests else "none"


def _about(clause: "Clause") -> str:
    return "\n".join([clause.text, *(f"by {test}" for test in clause.tests)])


def _print_cases(cases: "Sequence[Case]") -> None:
    for case in cases:
        wants = " ".join(f"{k}={v}" for k, v in case.wants.items())
        click.echo(f"case {case.id} {case.title}" + (f"\nwith {wants}" if wants else ""))
        for step in case.steps:
            click.echo(f"    {step}")


def _print(results: "Sequence[Result]", target: str, where: Path) -> None:
    from netem.conform import report
    from netem.conform.known import deviation
    from netem.conform.script import Verdict

    quiet = {Verdict.PASS}
    show.table(
        "",
        ("case", "demands", "verdict", "why"),
        (
            (
                each.case.id,
                each.clause.strength,
                each.verdict,
                each.why + (f" [known: {known}]" if known else ""),
            )
            for each in results
            if each.verdict not in quiet
            for known in [deviation(target, each.case.id) if each.verdict == "fail" else ""]
        ),
    )
    click.echo(f"{target}: {len(results)} cases: {report.summary(results)}; stories in {where}")
