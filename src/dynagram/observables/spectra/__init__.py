"""Spectra of weights judged against untrained ones: power laws, random-matrix laws, a verdict."""

from dynagram.observables.spectra._power_law import PowerLaw, fit_power_law
from dynagram.observables.spectra._random_matrices import (
    gaussian_eigenvalues,
    marchenko_pastur_density,
    marchenko_pastur_distribution,
    marchenko_pastur_edges,
)
from dynagram.observables.spectra._spectra import WeightSpectrum, weight_spectrum

__all__ = [
    "PowerLaw",
    "WeightSpectrum",
    "fit_power_law",
    "gaussian_eigenvalues",
    "marchenko_pastur_density",
    "marchenko_pastur_distribution",
    "marchenko_pastur_edges",
    "weight_spectrum",
]
