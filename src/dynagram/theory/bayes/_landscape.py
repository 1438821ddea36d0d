"""Evidence landscapes: log p(y | depth, C_b, C_W) on a grid, at infinite width or to order 1/n.

The evidence punishes kernels that are too small for the targets exponentially and those that are
too large polynomially (6.36)-(6.39). For scale-invariant σ its maximum over C_W tends to the
critical value 1/A_2 with depth; for tanh and its class only the ordered side C_W < 1 is ruled
out, and the maximum lies where the nonzero fixed point of K matches the targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.data import Data
from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.networks import MLP, ActivationLike
from dynagram.theory.bayes._evidence import log_evidence
from dynagram.theory.bayes._solve import SINGULAR_ARGUMENT
from dynagram.training import Posterior


@dataclass(frozen=True)
class EvidencePeak:
    """The grid point of largest evidence."""

    depth: int
    C_b: float
    C_W: float
    log_evidence: float


@dataclass(frozen=True, eq=False)
class EvidenceLandscape:
    """log p(y) for every depth, C_b and C_W; nan where the kernel cannot be factorised.

    `width` is that of all hidden layers at order "1/n" and None at order "∞". `unresolved` says
    why each nan is one, as "depth=…, C_b=…, C_W=…: reason".
    """

    depth: tuple[int, ...]
    C_b: tuple[float, ...]
    C_W: tuple[float, ...]
    width: int | None
    log_evidence: Float[np.ndarray, "depth C_b C_W"]
    unresolved: tuple[str, ...]

    @property
    def best(self) -> EvidencePeak:
        """Where the evidence is largest, and how large it is there."""
        if np.all(np.isnan(self.log_evidence)):
            raise InvalidValueError(
                "landscape", "all nan", f"no point could be evaluated: {self.unresolved[0]}"
            )
        i, j, k = np.unravel_index(np.nanargmax(self.log_evidence), self.log_evidence.shape)
        value = float(self.log_evidence[i, j, k])
        return EvidencePeak(self.depth[i], self.C_b[j], self.C_W[k], value)


def evidence_landscape(
    activation: ActivationLike,
    data: Data,
    posterior: Posterior,
    *,
    depth: Sequence[int],
    C_b: Sequence[float],
    C_W: Sequence[float],
    width: int | None = None,
) -> EvidenceLandscape:
    """The log evidence of networks with L = `depth` weight layers and the same C_b, C_W in all.

    **Arguments:**

    - `activation`: of all networks.
    - `data`, `posterior`: as in `log_evidence`.
    - `depth`, `C_b`, `C_W`: the values of the grid.
    - `width`: of all hidden layers, taken into account to order 1/n; None is infinite width.

    **Returns:** `EvidenceLandscape`. Cost: one `log_evidence` per grid point.

    >>> data = Data(np.ones((1, 4)), [[1.0, np.sqrt(2.0)]])              # r = 1, Y = 3, n_L = 2
    >>> grid = {"depth": [2, 20], "C_b": [0.0], "C_W": [1.5, 1.75, 2.0]}
    >>> landscape = evidence_landscape("relu", data, Posterior(), **grid)
    >>> landscape.log_evidence[:, 0].round(3)
    array([[  -3.289,   -3.244,   -3.281],
           [-233.28 ,  -10.697,   -3.281]])
    >>> landscape.best.C_W, landscape.best.depth
    (1.75, 2)
    """
    axes = {"depth": list(depth), "C_b": _floats(C_b), "C_W": _floats(C_W)}
    for name, values in axes.items():
        if not values:
            raise InvalidValueError(name, values, "at least one value needed")
    order = "infinite" if width is None else "1/n"
    hidden = 1 if width is None else width
    table = np.full([len(values) for values in axes.values()], np.nan)
    unresolved: list[str] = []
    for place in np.ndindex(*table.shape):
        L, b, W = (values[i] for values, i in zip(axes.values(), place, strict=True))
        network = MLP([data.x.shape[1], *[hidden] * (L - 1), data.outputs], activation, b, W)
        try:
            evidence = log_evidence(network, data, posterior, order=order)
        except NonFiniteError as error:
            unresolved.append(f"depth={L}, C_b={b:g}, C_W={W:g}: {error}")
        except InvalidValueError as error:
            if error.argument != SINGULAR_ARGUMENT:
                raise
            unresolved.append(f"depth={L}, C_b={b:g}, C_W={W:g}: {error}")
        else:
            table[place] = evidence.value
    return EvidenceLandscape(
        tuple(axes["depth"]), tuple(axes["C_b"]), tuple(axes["C_W"]), width, table,
        tuple(unresolved),
    )  # fmt: skip


def _floats(values: Sequence[float]) -> list[float]:
    return [float(value) for value in values]
