"""Inputs, targets and networks that cases share; literal, so that no generator moves them."""

import numpy as np

from dynagram import MLP

# Three inputs without symmetry, the first two close; targets of two outputs; two test inputs.
X = np.array(
    [
        [0.9, -0.4, 1.3, 0.2],
        [0.7, -0.1, 1.1, 0.5],
        [-1.2, 0.8, 0.3, -0.6],
    ]
)
Y = np.array([[0.7], [-0.2], [0.4]])
TEST_X = np.array([[0.1, 0.6, -0.8, 1.0], [1.5, 0.3, -0.2, -0.9]])
TEST_Y = np.array([[0.3], [-0.5]])


def plain(activation, widths=(4, 12, 20, 16, 2)):
    """Unequal widths, variances and rates: no two terms have the same factor."""
    depth = len(widths) - 1
    return MLP(
        list(widths),
        activation,
        C_b=[0.11, 0.07, 0.05, 0.13][:depth],
        C_W=[1.3, 1.1, 1.4, 0.9][:depth],
        lambda_b=[0.8, 1.2, 0.6, 0.9][:depth],
        lambda_W=[1.1, 0.7, 1.3, 1.0][:depth],
    )
