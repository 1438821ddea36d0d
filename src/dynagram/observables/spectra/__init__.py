"""Spectra of weights: power laws, random-matrix nulls."""
