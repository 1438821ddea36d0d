"""Estimators with the scikit-learn interface: nearly-kernel regression, networks as processes."""

from dynagram.estimators.gaussian_process import NetworkProcessRegressor as NetworkProcessRegressor
from dynagram.estimators.nearly_kernel import NearlyKernelRegressor as NearlyKernelRegressor
