"""Multipath Reliable Connection (MRC): its headers, behind UDP as RoCE v2's are."""
