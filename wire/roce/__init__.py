"""RoCE v2 headers, opcodes, ICRC, whole packets. IBTA vol. 1, chapters 5, 9, annex A17."""
