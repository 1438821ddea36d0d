"""A network of finite width as a quadratic model with wiring (11.143)-(11.150).

Expanded to second order around its initialisation, a network is a quadratic model with random
features dz/dθ and meta features d²z/dθ²: its kernel is its own NTK, its meta kernel its own dNTK,
and all outputs share the parameters, so rows are (sample, output) pairs. This is a model in its own
right, not the order-1/n theory, which also needs the third derivatives (11.151)-(11.153).
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Float

from dynagram._precision import float64
from dynagram.networks import MLP, Params, check_inputs
from dynagram.observables.tangents._dntk import dntk
from dynagram.observables.tangents._ntk import ntk
from dynagram.theory.bayes._solve import check_data
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
def network_model(network: MLP, params: Params, x: object) -> NetworkModel:
    """The NTK and dNTK of the network with parameters `params` on the rows of `x`, in float64.

    Memory and cost: (N n_L)³ numbers, see `dntk`.

    >>> net = MLP([2, 50, 1], "tanh", C_b=0.0, C_W=1.0)
    >>> model = network_model(net, net.draw(jax.random.key(0)), np.ones((3, 2)))
    >>> model.kernel.shape, model.meta_kernel.shape
    ((3, 3), (3, 3, 3))
    """
    inputs = check_inputs(x, network.widths[0])
    exact = jax.tree.map(lambda leaf: jax.numpy.asarray(leaf, dtype=jax.numpy.float64), params)
    kernel = np.asarray(ntk(network, exact, inputs)).transpose(0, 2, 1, 3)
    meta = np.asarray(dntk(network, exact, inputs)).transpose(0, 3, 1, 4, 2, 5)
    rows = inputs.shape[0] * network.widths[-1]
    outputs = np.asarray(network.apply(exact, inputs))
    return NetworkModel(kernel.reshape(rows, rows), meta.reshape(rows, rows, rows), outputs)


def network_prediction(
    network: MLP,
    params: Params,
    x: object,
    y: object,
    test_x: object,
    *,
    solution: str = "gd",
    eta: float | None = None,
) -> NetworkPrediction:
    """Train the quadratic model of one network from its own initialisation, to first order in dH.

    `eta` is the global learning rate of the network, with its own λ's; the loss is ½Σ(z − y)².
    Solutions as in `fit_nearly_kernel`. Samples come out as [train…, test…].

    >>> net = MLP([2, 50, 1], "tanh", C_b=0.0, C_W=1.0)
    >>> params = net.draw(jax.random.key(0), dtype="float32")
    >>> found = network_prediction(net, params, np.eye(2), [0.5, -0.5], [[1.0, 1.0]], eta=0.1)
    >>> found.outputs[:2].ravel().round(6), found.response.shape
    (array([ 0.5, -0.5]), (3, 1, 2, 1))
    """
    inputs, targets = check_data(network, x, y)
    tests = check_inputs(test_x, network.widths[0], "test_x")
    model = network_model(network, params, np.concatenate([inputs, tests]))
    train, n_L = targets.shape
    missing = (targets - model.outputs[:train]).reshape(-1, 1)
    # Outputs are quadratic in y, so a central difference of any size is their exact derivative.
    steps = np.eye(missing.size)
    columns = np.concatenate([missing, missing + steps, missing - steps], axis=1)
    found = nearly_kernel_prediction(
        model.kernel, model.meta_kernel, columns, solution=solution, eta=eta
    )
    shift, up, down = np.split(found, [1, 1 + missing.size], axis=1)
    outputs = model.outputs + shift.reshape(model.outputs.shape)
    response = (0.5 * (up - down)).reshape(-1, n_L, train, n_L)
    return NetworkPrediction(outputs, model.outputs, response)
