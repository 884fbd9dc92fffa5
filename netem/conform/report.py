"""What a run came to, for people and programs: JSON, JUnit, Markdown, and the exit code."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree as ET

from netem.conform.clauses import clauses
from netem.conform.known import deviation
from netem.conform.script import Verdict
from netem.conform.suite import Result

DONE, FAILED, INCONCLUSIVE = 0, 1, 4
# The verdict of a clause is the first of these that one of its cases has.
_WORST = (
    Verdict.FAIL,
    Verdict.INCONCLUSIVE,
    Verdict.PASS,
    Verdict.UNSUPPORTED,
    Verdict.UNTESTED,
)


def exit_code(results: Sequence[Result], *, strict: bool, interrupted: bool) -> int:
    """Return how the verb ends: 1 a clause fails, 4 nothing can be said, 0 all is well."""
    if any(result.counts(strict=strict) for result in results):
        return FAILED
    told = {Verdict.PASS, Verdict.FAIL}
    if interrupted or not any(result.verdict in told for result in results):
        return INCONCLUSIVE
    if any(result.verdict is Verdict.INCONCLUSIVE for result in results):
        return INCONCLUSIVE
    return DONE


def as_json(results: Sequence[Result], target: str, *, interrupted: bool) -> dict[str, Any]:
    """Return the result as verbs.schema.json has it. Values are of any JSON kind."""
    return {
        "target": target,
        "interrupted": interrupted,
        "cases": [
            {
                "id": result.case.id,
                "title": result.case.title,
                "clauses": list(result.case.clauses),
                "section": result.clause.section,
                "strength": result.clause.strength.value,
                "verdict": result.verdict.value,
                "why": result.why,
                "known": deviation(target, result.case.id) if _fails(result) else "",
                "folder": result.folder,
            }
            for result in results
        ],
    }


def junit(results: Sequence[Result], target: str) -> str:
    """Return the result as JUnit's XML, which CI systems read."""
    verdicts = Counter(result.verdict for result in results)
    skipped = verdicts[Verdict.UNSUPPORTED] + verdicts[Verdict.UNTESTED]
    suite = ET.Element(
        "testsuite",
        name=f"fabriclab conform --target {target}",
        tests=str(len(results)),
        failures=str(verdicts[Verdict.FAIL]),
        errors=str(verdicts[Verdict.INCONCLUSIVE]),
        skipped=str(skipped),
        time=f"{sum(result.seconds for result in results):.3f}",
    )
    for result in results:
        case = ET.SubElement(
            suite,
            "testcase",
            classname=result.clause.family,
            name=f"{result.case.id} {result.case.title}",
            time=f"{result.seconds:.3f}",
        )
        kind = {
            Verdict.FAIL: "failure",
            Verdict.INCONCLUSIVE: "error",
            Verdict.UNSUPPORTED: "skipped",
            Verdict.UNTESTED: "skipped",
        }.get(result.verdict)
        if kind is not None:
            ET.SubElement(case, kind, message=f"{result.verdict}: {_printable(result.why)}")
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode") + "\n"


def markdown(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of runs, each as `as_json` has it: a row per clause, a column per run.

    Behind it stands what failed, and whether that is known.
    """
    verdicts = [clause_verdicts(run["cases"]) for run in runs]
    names = [run["target"] for run in runs]
    lines = [
        f"| clause | demands | {' | '.join(names)} | what |",
        f"|---|---|{'---|' * len(names)}---|",
    ]
    for name, about in clauses().items():
        if not any(name in found for found in verdicts):
            continue
        cells = [found.get(name, Verdict.UNTESTED).value for found in verdicts]
        shown = " | ".join(f"**{cell}**" if cell == "fail" else cell for cell in cells)
        lines.append(f"| {name} | {about.strength} | {shown} | {about.text} |")
    lines.append("")
    for run in runs:
        notes = [f"* {_note(case)}" for case in run["cases"] if case["verdict"] == Verdict.FAIL]
        if notes:
            lines += [f"What fails with {run['target']}:", "", *notes, ""]
    return "\n".join(lines)


def clause_verdicts(cases: Iterable[Mapping[str, Any]]) -> dict[str, Verdict]:
    """Return the verdict of every clause that some case was to prove: the worst of them."""
    found: dict[str, set[Verdict]] = {}
    for case in cases:
        for name in case["clauses"]:
            found.setdefault(name, set()).add(Verdict(case["verdict"]))
    return {
        name: next(verdict for verdict in _WORST if verdict in verdicts)
        for name, verdicts in found.items()
    }


def summary(results: Sequence[Result]) -> str:
    """Return the counts in one line."""
    counts = Counter(result.verdict for result in results)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])


def _note(case: Mapping[str, Any]) -> str:
    known = f" Known: {case['known']}." if case["known"] else ""
    return f"{case['id']}: {case['why']}.{known}"


def _fails(result: Result) -> bool:
    return result.verdict is Verdict.FAIL


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
