"""One HTML page from a run folder."""
