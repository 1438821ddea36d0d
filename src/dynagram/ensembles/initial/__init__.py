"""Ensembles of networks at initialisation."""
