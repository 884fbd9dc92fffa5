"""Multipath Reliable Connection (MRC), profile `mrc-emu/1`: queue pairs that spray packets."""
