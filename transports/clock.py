"""Time is an int of nanoseconds since an arbitrary start; `now` never decreases."""

from typing import TypeAlias

Ns: TypeAlias = int

US: Ns = 1_000
MS: Ns = 1_000_000
S: Ns = 1_000_000_000
