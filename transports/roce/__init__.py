"""RoCE v2 transport services: queue pairs, memory regions, completions, the NIC port."""
