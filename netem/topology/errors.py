"""What is wrong with a lab file: every problem, one line each."""

from collections.abc import Iterable

MAX_PROBLEMS = 50  # of one lab; the rest are counted, not listed
MAX_SHOWN = 40  # characters of a value that a message repeats


class LabError(ValueError):
    """A lab that cannot be. `problems` are lines `key.path: what is wrong; what is legal`."""

    def __init__(self, problems: Iterable[str]) -> None:
        lines = list(problems)
        if len(lines) > MAX_PROBLEMS:
            rest = len(lines) - MAX_PROBLEMS
            lines[MAX_PROBLEMS:] = [f"and {rest} more problems"]
        self.problems = tuple(lines)
        super().__init__("\n".join(self.problems))


def shown(value: object) -> str:
    """Return `value` as it may stand in a one-line message: short, printable, ASCII."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case str() if value.isprintable() and value.isascii() and value:
            text = value
        case str():
            text = ascii(value)
        case _:
            text = str(value)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."
