"""The first step of training: how much features and the NTK move, on average, at order 1/n.

Mean change of the NTK by (11.10) with (11.42), mean second-order change of the outputs by (11.9),
mean and second moment of the change of the penultimate preactivations by (10.11), (10.12); MSE
loss ½Σ(z − y)². At infinite width none of them moves. Exact at any width for one hidden layer,
except the second moment.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.data import Data
from dynagram.gaussian._families import TwoPoint
from dynagram.networks import MLP
from dynagram.networks._checks import checked_number
from dynagram.theory._predict import predict
from dynagram.theory.bayes._evidence import require_vertex


@dataclass(frozen=True, eq=False)
class FirstStep:
    """Average effects of one step of gradient descent at rate `eta`; samples are [train…, test…].

    `ntk_change` E[dH_ii] to order η, without the targets, which drop out of the mean.
    `output_bend` the mean of ½η² dH εε, what the moving NTK adds to each output's first step.
    `feature_mean` and `feature_square` are E[dz_j;a] and E[dz_j;a dz_j;b] of any neuron j of the
    last hidden layer. `Theta` and `K` are there to compare with: the frozen NTK of the output, and
    the kernel of the last hidden layer.
    """

    eta: float
    ntk_change: Float[np.ndarray, "a b"]
    output_bend: Float[np.ndarray, "a n_L"]
    feature_mean: Float[np.ndarray, " a"]
    feature_square: Float[np.ndarray, "a b"]
    Theta: Float[np.ndarray, "a b"]
    K: Float[np.ndarray, "a b"]

    @property
    def relative_ntk_change(self) -> float:
        """‖E dH‖/‖Θ‖ in Frobenius norm: 0 at infinite width."""
        return float(np.linalg.norm(self.ntk_change) / np.linalg.norm(self.Theta))

    @property
    def relative_feature_change(self) -> float:
        """√(Σ_a E[dz_a²]/Σ_a K_aa) in the last hidden layer: 0 at infinite width."""
        return float(np.sqrt(np.trace(self.feature_square) / np.trace(self.K)))


def first_step(
    network: MLP, data: Data, *, eta: float, accuracy: float = 1e-4, seed: int = 0
) -> FirstStep:
    """Representation learning in one step of gradient descent on ½Σ(z − y)², on average.

    **Arguments:**

    - `network`: an `MLP` with a smooth activation, for P and Q.
    - `data`: training inputs and targets, and test inputs if there are any.
    - `eta`: the global step size.
    - `accuracy`, `seed`: as in `predict`.

    **Returns:** `FirstStep`, samples as [train…, test…]. Cost: those of P, Q on all samples, N⁴
    numbers per layer.

    >>> net = MLP([3, 100, 1], "gelu", C_b=0.1, C_W=1.5)
    >>> step = first_step(net, Data(np.ones((1, 3)), [1.0]), eta=0.1)
    >>> step.ntk_change.round(5), round(step.relative_ntk_change, 5)
    (array([[-0.01131]]), 0.00357)
    """
    rate = checked_number("eta", eta, "a step size must be > 0", positive=True)
    data.check(network)
    require_vertex(network, "the first step at order 1/n")
    inputs, targets, samples = data.x, data.y, data.inputs
    names = ("K", "Theta", "P", "Q")
    theory = predict(network, samples, names, accuracy=accuracy, seed=seed)
    A, n, (_, n_L) = slice(0, inputs.shape[0]), network.widths[-2], targets.shape
    P, Q = theory["P"][-1], theory["Q"][-1]
    change = (
        np.einsum("deaa->de", P[:, :, A, A])
        + n_L * np.einsum("deaa->de", Q[:, :, A, A])
        + np.einsum("daea->de", Q[:, A, :, A])
    )
    bend = np.einsum("dabc,bi,ac->di", P[:, A, A, A] + Q[:, A, A, A], targets, np.eye(len(inputs)))
    bend += n_L * np.einsum("dabb,ai->di", Q[:, A, A, A], targets)
    K, Theta, C_W = theory["K"][-2], theory["Theta"][-2], network.C_W[-1]
    averages = TwoPoint(network.activation, K)
    drift = np.diagonal(averages(1, 0))[A]
    residual = n_L * theory["K"][-1][A, A] + targets @ targets.T
    square = Theta[:, A] @ (residual * averages(1, 1)[A, A]) @ Theta[A, :]
    return FirstStep(
        eta=rate,
        ntk_change=-rate / n * (change + change.T),
        output_bend=-(rate**2) / n * bend,
        feature_mean=-rate * C_W * n_L / n * (Theta[:, A] @ drift),
        feature_square=rate**2 * C_W / n * square,
        Theta=theory["Theta"][-1],
        K=K,
    )
