"""Expectations under Gaussian distributions: closed forms, series, quadrature, each with errors."""

from dynagram.gaussian._four_point import FourPoint as FourPoint
from dynagram.gaussian._scalar import kernel_derivative as kernel_derivative
from dynagram.gaussian._scalar import moment as moment
from dynagram.gaussian._two_point import cross_average as cross_average
from dynagram.gaussian._two_point import two_point as two_point
from dynagram.gaussian._two_point import two_point_matrix as two_point_matrix

__all__ = [
    "FourPoint",
    "cross_average",
    "kernel_derivative",
    "moment",
    "two_point",
    "two_point_matrix",
]
