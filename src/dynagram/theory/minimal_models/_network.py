"""A network of finite width as a quadratic model with wiring (11.143)-(11.150).

Expanded to second order around its initialisation, a network is a quadratic model with random
features dz/dθ and meta features d²z/dθ²: its kernel is its own NTK, its meta kernel its own dNTK,
and all outputs share the parameters, so rows are (sample, output) pairs. This is a model in its own
right, not the order-1/n theory, which also needs the third derivatives (11.151)-(11.153).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram._precision import float64
from dynagram.data import Data
from dynagram.data._data import check_inputs
from dynagram.networks import Model
from dynagram.observables.tangents._dntk import dntk
from dynagram.observables.tangents._ntk import ntk
from dynagram.theory.minimal_models._nearly_kernel import nearly_kernel_prediction


@dataclass(frozen=True, eq=False)
class NetworkModel:
    """NTK and dNTK of one network on some samples, rows numbered sample·n_L + output.

    `kernel` H (11.146), `meta_kernel` dH (11.149), `outputs` z at initialisation.
    """

    kernel: Float[np.ndarray, "row row"]
    meta_kernel: Float[np.ndarray, "row row row"]
    outputs: Float[np.ndarray, "sample n_L"]


@dataclass(frozen=True, eq=False)
class NetworkPrediction:
    """Outputs of the trained quadratic model of one network, and how targets reach outputs.

    `outputs` and `initial` (sample, n_L) are those after and before training on the training
    samples, which come first; `response` [b, i, a, j] = dz_i;b/dy_j;a. Its entries with i ≠ j are
    the wiring: how the targets of one output move another.
    """

    outputs: Float[np.ndarray, "sample n_L"]
    initial: Float[np.ndarray, "sample n_L"]
    response: Float[np.ndarray, "sample n_L train n_L"]

    @property
    def wiring(self) -> Float[np.ndarray, "sample n_L train n_L"]:
        """The response between different outputs, 0 on the same one."""
        outputs = self.outputs.shape[1]
        return self.response * (1.0 - np.eye(outputs))[None, :, None, :]


@float64
def network_model(model: Model, x: object) -> NetworkModel:
    """The NTK and dNTK of one network, in float64.

    **Arguments:**

    - `model`: the network, with its learning rates, and its weights.
    - `x`: inputs (N, n_0), one per row.

    **Returns:** `NetworkModel`. Memory and cost: (N n_L)³ numbers, see `dntk`.

    >>> from dynagram.networks import MLP
    >>> drawn = MLP([2, 50, 1], "tanh", C_b=0.0, C_W=1.0).init(seed=0)
    >>> quadratic = network_model(drawn, np.ones((3, 2)))
    >>> quadratic.kernel.shape, quadratic.meta_kernel.shape
    ((3, 3), (3, 3, 3))
    """
    inputs = check_inputs(x, model.network.input_size)
    exact = model.in_float64()
    kernel = np.asarray(ntk(exact, inputs)).transpose(0, 2, 1, 3)
    meta = np.asarray(dntk(exact, inputs)).transpose(0, 3, 1, 4, 2, 5)
    rows, outputs = inputs.shape[0] * model.network.output_size, np.asarray(exact(inputs))
    return NetworkModel(kernel.reshape(rows, rows), meta.reshape(rows, rows, rows), outputs)


def network_prediction(
    model: Model, data: Data, *, solution: str = "gd", eta: float | None = None
) -> NetworkPrediction:
    """Train the quadratic model of one network from its own initialisation, to first order in dH.

    **Arguments:**

    - `model`: the network, with its learning rates, and its weights.
    - `data`: training inputs and targets, and test inputs; the loss is "half-sum", ½Σ(z − y)².
    - `solution`: as in `fit_nearly_kernel`.
    - `eta`: the global learning rate of the network.

    **Returns:** `NetworkPrediction`, its samples as [train…, test…].

    >>> from dynagram.networks import MLP
    >>> drawn = MLP([2, 50, 1], "tanh", C_b=0.0, C_W=1.0).init(seed=0, dtype="float32")
    >>> data = Data(np.eye(2), [0.5, -0.5], test_x=[[1.0, 1.0]])
    >>> after = network_prediction(drawn, data, eta=0.1)
    >>> after.outputs[:2].ravel().round(6), after.response.shape
    (array([ 0.5, -0.5]), (3, 1, 2, 1))
    """
    targets = data.check(model.network).y
    quadratic = network_model(model, data.inputs)
    train, n_L = targets.shape
    missing = (targets - quadratic.outputs[:train]).reshape(-1, 1)
    # Outputs are quadratic in y, so a central difference of any size is their exact derivative.
    steps = np.eye(missing.size)
    columns = np.concatenate([missing, missing + steps, missing - steps], axis=1)
    solved = nearly_kernel_prediction(
        quadratic.kernel, quadratic.meta_kernel, columns, solution=solution, eta=eta
    )
    shift, up, down = np.split(solved, [1, 1 + missing.size], axis=1)
    outputs = quadratic.outputs + shift.reshape(quadratic.outputs.shape)
    response = (0.5 * (up - down)).reshape(-1, n_L, train, n_L)
    return NetworkPrediction(outputs, quadratic.outputs, response)
