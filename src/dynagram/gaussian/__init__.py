"""Expectations under Gaussian distributions: closed forms, series, quadrature, each with errors."""
