"""Expectations under Gaussian distributions: closed forms, series, quadrature, each with errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynagram._lazy import facade

if TYPE_CHECKING:
    from dynagram.gaussian._four_point import FourPoint as FourPoint
    from dynagram.gaussian._scalar import hermite_polynomial as hermite_polynomial
    from dynagram.gaussian._scalar import kernel_derivative as kernel_derivative
    from dynagram.gaussian._scalar import moment as moment
    from dynagram.gaussian._two_point import cross_average as cross_average
    from dynagram.gaussian._two_point import two_point as two_point
    from dynagram.gaussian._two_point import two_point_matrix as two_point_matrix

__getattr__, __dir__, __all__ = facade(  # pyright: ignore[reportUnsupportedDunderAll]
    __name__,
    {
        "_scalar": "moment kernel_derivative hermite_polynomial",
        "_two_point": "two_point two_point_matrix cross_average",
        "_four_point": "FourPoint",
    },
)
