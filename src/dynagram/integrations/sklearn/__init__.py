"""Estimators with the scikit-learn interface: nearly-kernel regression, networks as processes."""

from dynagram.integrations.sklearn._gaussian_process import (
    NetworkProcessRegressor as NetworkProcessRegressor,
)
from dynagram.integrations.sklearn._nearly_kernel import (
    NearlyKernelRegressor as NearlyKernelRegressor,
)
