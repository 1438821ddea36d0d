"""Figures and remarks of The Principles of Deep Learning Theory (arXiv:2106.10165v2)."""
