"""Which counters of a session have been seen. RFC 6479; WireGuard paper, section 5.4.6.

A ring of 64-bit words: the newest counter moves the window, and what it steps over is cleared
word by word. The ring has at least one word more than the window, so that clearing the word
that the newest counter is in never touches what is still inside.
"""

from transports.overlay.limits import REJECT_AFTER_MESSAGES, REPLAY_WINDOW

_WORD = 64


class ReplayWindow:
    """Counters of one session, each accepted once; asked when a packet is proven good."""

    __slots__ = ("_mask", "_words", "limit", "newest", "size")

    def __init__(self, size: int = REPLAY_WINDOW, limit: int = REJECT_AFTER_MESSAGES) -> None:
        """Accept counters up to `size` behind the newest, and none from `limit` on."""
        words = 1 << (-(-(size + _WORD) // _WORD) - 1).bit_length()
        self.size = size
        self.newest = -1
        self.limit = limit
        self._mask = words - 1
        self._words = [0] * words

    def accept(self, counter: int) -> bool:
        """Say whether `counter` is new and inside the window, and remember it."""
        words, mask = self._words, self._mask
        place = counter >> 6
        behind = self.newest - counter
        if behind < 0:
            if counter >= self.limit:
                return False
            newest = self.newest >> 6
            for stepped in range(newest + 1, newest + 1 + min(place - newest, len(words))):
                words[stepped & mask] = 0
            self.newest = counter
        elif behind > self.size:
            return False
        bit = 1 << (counter & 63)
        word = words[place & mask]
        if word & bit:
            return False
        words[place & mask] = word | bit
        return True

    def accept_run(self, first: int, count: int) -> bool:
        """Accept `count` counters from `first` on, if all are newer than any; else none."""
        end = first + count
        if first <= self.newest or end > self.limit:
            return False
        words, mask = self._words, self._mask
        newest = self.newest >> 6
        last = end - 1 >> 6
        for stepped in range(newest + 1, newest + 1 + min(last - newest, len(words))):
            words[stepped & mask] = 0
        while first < end:
            bits = min(_WORD - (first & 63), end - first)
            words[first >> 6 & mask] |= (1 << bits) - 1 << (first & 63)
            first += bits
        self.newest = end - 1
        return True
