"""The fields of a network with several outputs: one set of activations, a conjugate field each.

Output k is read with a readout c_k of its own: u, v and a are common, b_{ℓ,k} and
z_{ℓ,k} = a_ℓ ⊙ b_{ℓ,k} belong to the output. What one output learns moves the others through

    K^{αβ}_{kk'} = Σ_ℓ Q^(ℓ-1)_αβ S^(ℓ)_αβ,kk',      S^(ℓ)_αβ,kk' = z_{ℓ,k}^α·z_{ℓ,k'}^β/N,

(172) with two more indices: the tangent kernel of all outputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Float

from dynagram._precision import float64
from dynagram.errors import InvalidValueError
from dynagram.networks import Architecture, Layer, Model, check_inputs
from dynagram.networks._checks import require_plain
from dynagram.networks._model import takes_model
from dynagram.observables.fields._overlaps import conjugate_correlators, moved_overlaps
from dynagram.observables.fields._state import Fields, check_finite, network_fields
from dynagram.observables.tangents._signals import check_differentiable


@dataclass(frozen=True, eq=False)
class OutputFields:
    """The `Fields` of every output of one network on M samples; u, v and a are shared.

    **Arguments:**

    - `model`: the network they were measured on.
    - `each`: the `Fields` of outputs 1..n, each of a network that has this output alone.
    """

    model: Model
    each: tuple[Fields, ...]

    @property
    def shared(self) -> Fields:
        """The fields of the first output, for what does not depend on the output."""
        return self.each[0]

    @property
    def outputs(self) -> Float[np.ndarray, "samples outputs"]:
        """Ŷ_k^α."""
        return np.stack([fields.output for fields in self.each], axis=1)

    @property
    def samples(self) -> int:
        """M."""
        return self.shared.samples

    def pulled(
        self, signal: Float[np.ndarray, "samples outputs"]
    ) -> tuple[Float[np.ndarray, "samples _"], ...]:
        """Σ_k e_k^α z_{ℓ,k}^α, ℓ = 1..L: the conjugate fields of a signal at the outputs."""
        layers = range(self.shared.hidden_layers)
        return tuple(
            sum(
                (signal[:, k, None] * fields.z[layer] for k, fields in enumerate(self.each)),
                start=np.zeros_like(self.shared.v[layer]),
            )
            for layer in layers
        )


@takes_model
@float64
def output_fields(model: Model, x: object) -> OutputFields:
    """The fields of a network with one output or several.

    **Arguments:**

    - `model`: a network without skips, whose last layer is the readout, c_k = N W_k^(L+1); any
        activation without jumps.
    - `x`: inputs (M, n_0), one per row.

    **Returns:** `OutputFields`, in the dtype of the parameters. Cost: one forward pass, and one
    backward pass per output; memory (3 + n_out) M Σ n_ℓ numbers.

    >>> model = Model.of_matrices([np.eye(2), np.array([[1.0, 1.0], [1.0, -1.0]])], "relu")
    >>> found = output_fields(model, np.array([[2.0, 3.0]]))
    >>> found.outputs.tolist(), [fields.b[0].tolist() for fields in found.each]
    ([[5.0, -1.0]], [[[2.0, 2.0]], [[2.0, -2.0]]])
    """
    network = model.network
    if network.depth < 2:
        raise InvalidValueError("depth", network.depth, "at least one hidden layer needed")
    require_plain(network, "the laws of the fields")
    check_differentiable(network, 1, "a conjugate field")
    passes = network_fields(network, model.params, check_inputs(x, network.widths[0]))
    N, arrays = network.widths[-2], jax.tree.map(np.asarray, model)
    each = []
    for k in range(network.widths[-1]):
        single = Architecture(
            [*network.widths[:-1], 1],
            network.activation,
            lambda_b=list(network.lambda_b),
            lambda_W=list(network.lambda_W),
        )
        last = arrays.params[-1]
        row = Layer(last.b[k : k + 1], last.W[k : k + 1])
        fields = Fields(
            Model(single, (*arrays.params[:-1], row)),
            u=passes.u,
            v=passes.z[:-1],
            a=passes.slopes,
            b=tuple(N * B[:, k, :] for B in passes.B),
            output=passes.z[-1][:, k],
        )
        check_finite(fields)
        each.append(fields)
    return OutputFields(arrays, tuple(each))


def output_kernel(
    fields: OutputFields, others: OutputFields | None = None
) -> Float[np.ndarray, "rows columns outputs outputs"]:
    """K^{αβ}_{kk'}: by how much a step on output k' of β moves output k of α.

    **Arguments:**

    - `fields`: those of the rows.
    - `others`: those of the columns; the same as the rows without.

    **Returns:** [α, β, k, k'], the order of `ntk`, which it equals for the learning rates of the
    network. Cost: n_out² products of fields per layer.

    >>> model = Model.of_matrices([np.eye(2), np.array([[1.0, 1.0], [1.0, -1.0]])], "relu")
    >>> output_kernel(output_fields(model, np.array([[2.0, 3.0]]))).ravel().tolist()
    [39.0, 0.0, 0.0, 39.0]
    """
    columns = others or fields
    n = len(fields.each)
    Q = moved_overlaps(fields.shared, columns.shared)
    kernel = np.zeros((fields.samples, columns.samples, n, n))
    for k, first in enumerate(fields.each):
        for j, second in enumerate(columns.each):
            kernel[:, :, k, j] = np.sum(Q[:-1] * conjugate_correlators(first, second), axis=0)
        # Rows of the readout belong to one output each: S = N on the diagonal, 0 beside it.
        kernel[:, :, k, k] += fields.shared.N * Q[-1]
    return kernel
