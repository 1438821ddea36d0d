"""Ensembles of concrete networks: sampled, measured, summarised with standard errors."""
