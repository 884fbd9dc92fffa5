"""What somebody may have meant: the known words closest to an unknown one."""

from collections.abc import Iterable

MOST_LISTED = 40  # legal words that a refusal lists


def distance(a: str, b: str) -> int:
    """Return how many letters to insert, remove, replace or swap with a neighbour."""
    before: list[int] = []
    above = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            cost = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (x != y))
            if before and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, above = above, row
    return above[-1]


def close(word: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Return up to `most` of the words that `word` may be a slip of, the closest first."""
    if len(word) > 64:  # nobody's slip, and the distance costs the product of the lengths
        return []
    allowed = max(1, len(word) // 3)
    ranked = sorted((distance(word.lower(), other.lower()), other) for other in known)
    return [other for slips, other in ranked if slips <= allowed][:most]


def suggestion(word: str, known: Iterable[str], legal: str = "legal") -> str:
    """Return the end of a refusal: "; did you mean X; legal: A, B, C"."""
    words = list(known)
    meant = close(word, words)
    guess = f"; did you mean {' or '.join(meant)}" if meant else ""
    some = ", ".join(words[:MOST_LISTED]) + (", ..." if len(words) > MOST_LISTED else "")
    return f"{guess}; {legal}: {some}" if words else guess
