"""Ensembles of concrete networks: sampled, measured, summarised with standard errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynagram._lazy import facade

if TYPE_CHECKING:
    from dynagram.ensembles._exact_posterior import exact_posterior as exact_posterior
    from dynagram.ensembles._runs import open_run as open_run
    from dynagram.ensembles._runs import resume_run as resume_run
    from dynagram.ensembles._simulate import simulate as simulate

__getattr__, __dir__, __all__ = facade(  # pyright: ignore[reportUnsupportedDunderAll]
    __name__,
    {
        "_exact_posterior": "exact_posterior",
        "_runs": "open_run resume_run",
        "_simulate": "simulate",
    },
)
