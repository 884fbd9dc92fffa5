"""The table of what the whole product came to: TABLE.md."""

from collections.abc import Iterable
from pathlib import Path

from tests.interop.roce.runs import ROLES, Run, impaired, product

_HOWS = ("loses", "duplicates", "reorders")


class Table:
    """What was run and how it ended, written down after each."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._clean: dict[Run, bool] = {}
        self._impaired: dict[tuple[str, Run], bool] = {}

    def note(self, run: Run, *, passes: bool) -> None:
        self._clean[run] = passes
        self._write()

    def note_impaired(self, how: str, ends: dict[Run, bool]) -> None:
        self._impaired |= {(how, run): passes for run, passes in ends.items()}
        self._write()

    def _write(self) -> None:
        if self._path is not None:
            self._path.write_text(
                "\n".join([*self._clean_lines(), *self._impaired_lines(), ""])
            )

    def _clean_lines(self) -> Iterable[str]:
        ends = self._clean
        yield "# What the kernel's Soft-RoCE made of us"
        yield ""
        yield f"`make interop-full`: {_done(ends, len(list(product())))}."
        yield "In the columns of our roles: passed of those done."
        yield ""
        yield (
            "| tool | service | sizes | path MTUs | QPs | exchange | option | families"
            " | client | server |"
        )
        yield "|---|---|---|---|---|---|---|---|---|---|"
        groups: dict[tuple[str, ...], dict[Run, bool]] = {}
        for run, passes in ends.items():
            key = run.tool, run.service.name, run.kind, run.exchange, run.option
            groups.setdefault(key, {})[run] = passes
        order = {run[:1]: place for place, run in enumerate(product())}
        for key in sorted(groups, key=lambda key: (key[3] == "-R", order[key[:1]], key[1:])):
            group = groups[key]
            tool, service, kind, exchange, option = key
            cells = [f"{tool} {kind}".strip(), service]
            cells += [_values(group, name) for name in ("size", "path_mtu", "qps")]
            cells += [exchange, option, _values(group, "family")]
            cells += [
                _counts(end for run, end in group.items() if run.role == r) for r in ROLES
            ]
            yield f"| {' | '.join(cells)} |"
        yield from _failures(str(run) for run, passes in ends.items() if not passes)

    def _impaired_lines(self) -> Iterable[str]:
        ends = self._impaired
        yield ""
        yield "## Over links that impair, both ways"
        yield ""
        yield f"1 % loss; 2 % duplicates; 5 % reordered: {_done(ends, len(list(impaired())))}."
        yield "Every reliable tool in both roles; of UC and UD what can end there (`runs.py`)."
        yield ""
        yield f"| tool | service | size | exchange | families | {' | '.join(_HOWS)} |"
        yield "|---|---|---|---|---|---|---|---|"
        groups: dict[tuple[str, ...], dict[tuple[str, Run], bool]] = {}
        for (how, run), passes in ends.items():
            key = run.tool, run.service.name, run.kind, str(run.size), run.exchange
            groups.setdefault(key, {})[how, run] = passes
        order = {run[:1]: place for place, run in enumerate(product())}
        for key in sorted(groups, key=lambda key: (key[4] == "-R", order[key[:1]], key[1:])):
            group = groups[key]
            tool, service, kind, size, exchange = key
            families = ", ".join(map(str, sorted({run.family for _, run in group})))
            cells = [f"{tool} {kind}".strip(), service, size, exchange, families]
            cells += [
                _counts(end for (how, _), end in group.items() if how == h) for h in _HOWS
            ]
            yield f"| {' | '.join(cells)} |"
        yield from _failures(
            f"{how} {run}" for (how, run), passes in ends.items() if not passes
        )


def _done(ends: dict, of: int) -> str:
    return f"{len(ends)} of {of} runs done, {sum(ends.values())} pass"


def _counts(found: Iterable[bool]) -> str:
    ends = list(found)
    return f"{sum(ends)} of {len(ends)}" if ends else ""


def _values(group: dict[Run, bool], name: str) -> str:
    return ", ".join(map(str, sorted({getattr(run, name) for run in group})))


def _failures(names: Iterable[str]) -> Iterable[str]:
    lines = [f"* {name}" for name in names]
    yield from ["", "Failed:", "", *lines] if lines else []
