"""Exact and perturbative statistics of networks at initialisation (book chapters 3 and 4)."""
