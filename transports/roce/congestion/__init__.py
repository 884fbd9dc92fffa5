"""DCQCN: congestion control of RoCE v2 by marks of switches. Annex A17; Zhu et al. 2015."""
