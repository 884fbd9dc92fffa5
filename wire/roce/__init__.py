"""RoCE v2: what follows UDP port 4791. IBTA vol. 1, chapters 7 and 9, annex A17."""
