"""`predict_outputs`: the one entrance to what trained and inferred networks output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynagram.data import Data
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks import MLP, Chain, Model
from dynagram.networks._checks import checked_choice
from dynagram.results._outputs import Outputs
from dynagram.theory.bayes._posterior import posterior_outputs
from dynagram.theory.training._one_network import own_outputs
from dynagram.theory.training._optimisers import Optimiser
from dynagram.theory.training._outputs import finite_outputs, infinite_outputs
from dynagram.theory.training._path_outputs import path_outputs
from dynagram.training import GradientDescent, GradientFlow, Posterior, Training, TwoStep
from dynagram.training._losses import SQUARED

ORDERS = ("infinite", "1/n")

# What the function takes. At run time it checks by itself, with clearer messages.
if TYPE_CHECKING:
    Network = MLP | Chain | Model
    Problem = Data
    Learning = Training | Posterior
else:
    Network = Problem = Learning = object


def predict_outputs(
    network: Network,
    data: Problem,
    how: Learning,
    *,
    order: str = "1/n",
    accuracy: float | None = None,
    seed: int = 0,
) -> Outputs:
    """Mean and covariance over initialisations of what networks output after learning.

    At infinite width training is (10.31), (10.40), (10.41) and inference (6.57), (6.64); to order
    1/n they are (∞.160)-(∞.165), docs/derivations/trained-outputs.md (D1.14), and (6.79)-(6.89).
    For one given network: its own NTK (∞.93), with order 1/n its dNTK and ddNTKs too (∞.154).
    Other losses than squared errors, batches, momentum and schedules have no closed forms: outputs
    are moved by the equations of docs/derivations/any-loss.md and averaged over initial outputs.

    **Arguments:**

    - `network`: an `MLP` or a `Chain` of blocks, of which all initialisations are meant, or a
        `Model`, one network.
    - `data`: what is learned, and the inputs that are asked about. Repeated training inputs are
        merged: one that comes twice trains with twice the weight.
    - `how`: a `Training` by gradient descent, gradient flow or in two steps on a squared error,
        to the end or recorded at any moments; with any other loss, batches or momentum, at given
        moments; or a `Posterior`.
    - `order`: "1/n", or "infinite" for infinite width. The order 1/n of training needs a smooth
        activation: at a kink the expansion in the step size fails.
    - `accuracy`: relative error allowed in four-sample averages; by default 1e-4, and 0.015 in
        trainings with more than ten samples, where they are averages over quasi-random nodes.
        What it leaves in the result is in `Outputs.error`.
    - `seed`: of the quasi-random nodes.

    **Returns:** `Outputs`, for test samples; `.train` for training samples, `.at(time)` for the
    moments of `how.times`. For a `Posterior`, `about["log_evidence"]`. For a `Model` the covariance
    is zero, and `mean_infinite` is the output with its NTK held fixed.

    Cost at infinite width: one `frozen_kernels` on all samples and N_A³. To order 1/n of training:
    the tensors of all N = N_A + N_B samples, once for all moments, then N⁵ multiply-adds in the
    eigenbasis of the training NTK. 16 + 16 samples, depth 4: half a minute and 1.4 GB; 64 + 64 on
    an H200: two minutes, 14 GB and 78 GB of the GPU (`benchmarks/trained_size.py`). Memory: about
    80 N⁴ numbers, half of that beyond 76 samples. Without closed forms, besides, N_A³N n_L for each
    of about 500 nodes and every step, and at most 64 samples: cross-entropy of three classes, 16 +
    16 samples, depth 4, 100 steps, a minute and a half of CPU and 1.7 GB. Of inference: V of all
    samples, N⁴ numbers per layer.

    >>> from dynagram.training import GradientDescent, GradientFlow
    >>> net = MLP([3, 64, 1], "tanh", C_b=0.1, C_W=1.2)
    >>> data = Data([[1.0, -0.4, 0.7]], [0.9], test_x=[[0.2, -1.3, 0.9]])
    >>> end = predict_outputs(net, data, Training(GradientFlow()))
    >>> end
    Outputs(order 1/n; 1 test samples × 1 outputs; the end; trust)
    >>> end.mean_infinite.round(4), end.mean_correction.round(4), end.mean.round(4)
    (array([[0.7756]]), array([[0.0549]]), array([[0.7765]]))
    >>> early = predict_outputs(net, data, Training(GradientDescent(0.2), steps=5))
    >>> early.mean.round(4), early.std.round(4), early.train.std.round(4)
    (array([[0.7386]]), array([[0.5295]]), array([[0.0399]]))
    >>> bayes = predict_outputs(net, data, Posterior(noise=0.1), order="infinite")
    >>> bayes.mean.round(4), bayes.std.round(4), round(bayes.about["log_evidence"], 4)
    (array([[0.5913]]), array([[0.5763]]), -1.3347)
    """
    checked_choice("order", order, ORDERS)
    _check_kinds(network, data, how)
    label = "∞" if order == "infinite" else order
    if isinstance(how, Posterior):
        if isinstance(network, Model):
            allowed = "a Posterior is over all initialisations: expected an MLP"
            raise InvalidTypeError("network", network, allowed)
        return posterior_outputs(network, data, how, order=label, accuracy=accuracy, seed=seed)
    _require_closed_equations(how)
    if isinstance(network, Model):
        _require_own_path(how)
        return own_outputs(network, data, how, order=label)
    if not has_closed_form(how):
        return path_outputs(network, data, how, order=label, accuracy=accuracy, seed=seed)
    if label == "∞":
        return infinite_outputs(network, data, how)
    return finite_outputs(network, data, how, accuracy=accuracy, seed=seed)


def _check_kinds(network: object, data: object, how: object) -> None:
    for name, value, kinds, words in (
        ("network", network, (MLP, Chain, Model), "an MLP or a Chain, or a Model for one network"),
        ("data", data, (Data,), "Data(x, y, test_x=…)"),
        ("how", how, (Training, Posterior), "Training(…) or Posterior(…)"),
    ):
        if not isinstance(value, kinds):
            text = f"a {type(value).__name__}"
            raise InvalidTypeError(name, text, f"expected {words}")


def has_closed_form(how: Training) -> bool:
    """Whether outputs are known functions of time: a squared error of all samples, no memory."""
    plain = isinstance(how.algorithm, GradientDescent | GradientFlow | TwoStep)
    return plain and how.loss in SQUARED and how.batch is None and not how.schedule


def _require_closed_equations(how: Training) -> None:
    """Refuse a training whose path is not a function of the tangent kernels."""
    for name, value, none, words in (
        ("weight_decay", how.weight_decay, 0.0, "θ·∂z is not a function of the tangent kernels, "
         "so that no equations close: what one step of it does (10.42) is in "
         "dynagram.observables.tangents.weight_decay_drift; dynagram.train trains networks"),
        ("stop", how.stop, (), "predictions are for given moments: list them in `record`"),
    ):  # fmt: skip
        if value != none:
            raise InvalidValueError(name, value, f"not in a prediction: {words}")
    if not has_closed_form(how):
        Optimiser.of(how)


def _require_own_path(how: Training) -> None:
    """Refuse what is not known of one given network."""
    if not has_closed_form(how):
        allowed = "of one given network: a squared error of all samples by gd, flow or two-step"
        raise InvalidValueError("how", f"{how.name} on {how.loss}", allowed)
