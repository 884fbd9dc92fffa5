"""Draws that a test wrote down."""


class Script:
    """The word for frame n is the n-th one given."""

    def __init__(self, *words):
        self._words = words

    def word(self, number):
        return self._words[number]
