"""The exact flow of a block-symmetric network on a teacher with several modes, and its closures.

The N hidden neurons form K blocks of n_a; all neurons of a block are alike. Rows of W_1 in block k
are Σ_m A_1[k,m] v_m, entries of W_ℓ between blocks a and b are A_ℓ[a,b]/√(n_a n_b), entries of W_L
are a[b]/√n_b; N_B = N/K is the size of a block, the mean one if they differ. The set of these
networks is kept by gradient flow; the diagonal ones among them (block k sees mode k only), to which
the published ansatz is confined, are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dynagram._precision import float64
from dynagram.activations import Activation
from dynagram.errors import InvalidValueError
from dynagram.networks import (
    ActivationLike,
    Architecture,
    Layer,
    Model,
    checked_activation,
    checked_number,
)
from dynagram.theory.saddle._classes import classify
from dynagram.theory.saddle._flow import (
    RELATIVE_TOLERANCE,
    Arrival,
    Coordinates,
    Crossing,
    Problem,
    Quantity,
    arrive,
    follow,
    gaussian_nodes,
    loss,
    velocity,
    watched,
)
from dynagram.theory.saddle._symmetric import Number, Numbers, checked_count

Rates = Literal["block", "width", "uniform"]
Outputs = Literal["sum", "per mode"]


@dataclass(frozen=True, init=False)
class BlockNetwork:
    """A block-symmetric network and its teacher y = Σ_k β_k σ(v_k·x); hashable.

    **Arguments:**

    - `activation`: σ: a name, a callable or an `Activation`.
    - `depth`: L ≥ 2, the number of weight matrices.
    - `betas`: (β_1, …, β_K), the amplitudes of the teacher's modes, all > 0.
    - `block_size`: n_a, one number, or one for each block: then N_B, in the rates and the clock
        t = s/N_B, is their mean and row a of A_1 is N_B/n_a times as fast.
    - `open_layers`: the layers whose off-block entries move: all of 1 … L−1 is the exact flow (and,
        with one output per mode, layer L too), () the decoupled one, (1, 2) the published augmented
        closure. By default all that have such entries.
    - `outputs`: "sum", or "per mode", which gives every mode an output of its own.
    - `rates`: W_1 moves with rate 1, the deeper layers with 1/N_B ("block", which makes
        dx/dt = −∂𝓛/∂x in every coordinate), 1/N ("width") or 1 ("uniform").
    - `spacing`: the step of the quadrature grid.

    >>> network = BlockNetwork("tanh", depth=4, betas=(1, 0.3, 0.08), block_size=20)
    >>> network.open_layers, network.closed((1, 2)).coordinates, network.coordinates
    ((1, 2, 3), 24, 30)
    """

    activation: Activation
    depth: int
    betas: tuple[float, ...]
    block_size: int | tuple[int, ...]
    open_layers: tuple[int, ...]
    outputs: Outputs
    rates: Rates
    spacing: float

    def __init__(
        self,
        activation: ActivationLike,
        *,
        depth: int,
        betas: Numbers,
        block_size: int | Sequence[int],
        open_layers: Sequence[int] | None = None,
        outputs: str = "sum",
        rates: str = "block",
        spacing: Number = 0.33,
    ):
        def store(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        store("activation", checked_activation(activation))
        store("depth", checked_count("depth", depth, least=2))
        if len(betas) == 0:
            raise InvalidValueError("betas", tuple(betas), "at least one mode needed")
        store(
            "betas",
            tuple(checked_number("beta", b, "must be > 0", positive=True) for b in betas),
        )
        store("block_size", _checked_sizes(block_size, len(self.betas)))
        if outputs not in get_args(Outputs):
            raise InvalidValueError("outputs", outputs, "expected 'sum' or 'per mode'")
        if rates not in get_args(Rates):
            raise InvalidValueError("rates", rates, "expected 'block', 'width' or 'uniform'")
        store("outputs", outputs)
        store("rates", rates)
        last = self.depth if outputs == "per mode" else self.depth - 1
        layers = range(1, last + 1) if open_layers is None else open_layers
        if unknown := [layer for layer in layers if not 1 <= layer <= last]:
            raise InvalidValueError("open_layers", unknown, f"layers 1 to {last} have such entries")
        store("open_layers", tuple(sorted(set(layers))))
        store("spacing", checked_number("spacing", spacing, "must be > 0", positive=True))

    @property
    def modes(self) -> int:
        """K: teacher modes, and as many blocks."""
        return len(self.betas)

    @property
    def block_sizes(self) -> tuple[int, ...]:
        """n_a: the number of neurons in every block."""
        size = self.block_size
        return (size,) * self.modes if isinstance(size, int) else size

    @property
    def N_B(self) -> float:
        """N/K: the size of a block, the mean one if they differ."""
        return sum(self.block_sizes) / self.modes

    @property
    def coordinates(self) -> int:
        """How many numbers move."""
        return sum(int(np.sum(part)) for part in self._moving())

    @property
    def K(self) -> float:
        """√N_B h_σ α^{L−1}: the drive constant of a mode with β = 1, in reduced time."""
        return float(np.sqrt(self.N_B)) * classify(self.activation).chain_drive(self.depth)

    def closed(self, open_layers: Sequence[int]) -> BlockNetwork:
        """The same network where off-block entries of other layers than these stay as they are."""
        twin = replace(self)
        object.__setattr__(twin, "open_layers", tuple(sorted(set(open_layers))))
        return twin

    def aligned(
        self, scale: float | Sequence[float] | Float[np.ndarray, "layer mode"]
    ) -> Coordinates:
        """The block-diagonal state: `scale` in every layer and block, or one per layer and block.

        >>> network = BlockNetwork("tanh", depth=3, betas=(1, 0.5), block_size=4)
        >>> network.aligned(0.1).A1
        array([[0.1, 0. ], [0. , 0.1]])
        """
        X = np.broadcast_to(np.asarray(scale, dtype=np.float64), (self.depth, self.modes))
        if not np.all(np.isfinite(X)):
            raise InvalidValueError("scale", scale, "must be finite")
        diagonals = np.stack([np.diag(row) for row in X])
        last = X[-1:] if self.outputs == "sum" else diagonals[-1]
        return Coordinates(diagonals[0], diagonals[1:-1], np.array(last))

    def problem(self) -> Problem:
        """Nodes, targets and metric of the flow."""
        g, w = gaussian_nodes(self.activation, self.modes, self.spacing)
        parts = self.activation.values(g) * np.asarray(self.betas)[None, :]
        y = parts.sum(axis=1, keepdims=True) if self.outputs == "sum" else parts
        sizes = np.array([self.block_sizes if isinstance(self.block_size, tuple) else [self.N_B]])
        return Problem(g, w, y, np.sqrt(sizes), self.metric())

    def metric(self) -> Coordinates:
        """How fast each coordinate follows its gradient in reduced time; 0 where it is frozen."""
        deep = {"block": 1.0, "width": 1.0 / self.modes, "uniform": self.N_B}[self.rates]
        first = self.N_B / np.array(self.block_sizes)[:, None]  # n_a equal rows share a gradient
        speed = (first, deep, deep)
        return Coordinates(*(s * part for s, part in zip(speed, self._moving(), strict=True)))

    def embedded(self, state: Coordinates, n_0: int) -> Model:
        """The full network of N neurons a layer and its weights; v_k is the k-th input axis.

        Its learning-rate tensor is that of `rates`; biases are zero and do not learn. Closures do
        not apply: the full network moves as the exact flow does. Weights in JAX's current float.
        """
        K, depth, roots = self.modes, self.depth, np.sqrt(self.block_sizes)
        N, outputs = sum(self.block_sizes), state.a.shape[0]
        deep = {"block": float(K), "width": 1.0, "uniform": float(N)}[self.rates]
        network = Architecture(
            [n_0, *[N] * (depth - 1), outputs],
            self.activation,
            lambda_b=0.0,
            lambda_W=[float(n_0), *[deep] * (depth - 1)],
        )
        spread = np.repeat(np.eye(K), self.block_sizes, axis=0)  # (N, K): the block of a neuron
        first = np.zeros((N, n_0))
        first[:, :K] = spread @ state.A1
        shared = spread / roots
        hidden = [shared @ layer @ shared.T for layer in state.A]
        weights = [first, *hidden, state.a @ shared.T]
        layers = tuple(Layer(jnp.zeros(W.shape[0]), jnp.asarray(W)) for W in weights)
        return Model(network, layers)

    def _moving(self) -> Coordinates:
        """1 for the entries that move, 0 for the frozen ones."""
        K, eye, ones = self.modes, np.eye(self.modes), np.ones((self.modes, self.modes))
        hidden = [ones if layer in self.open_layers else eye for layer in range(2, self.depth)]
        if self.outputs == "sum":
            last = np.ones((1, K))
        else:
            last = ones if self.depth in self.open_layers else eye
        return Coordinates(
            ones if 1 in self.open_layers else eye,
            np.array(hidden).reshape(len(hidden), K, K),
            last,
        )


def _checked_sizes(block_size: object, modes: int) -> int | tuple[int, ...]:
    """One size, or one for every mode; equal ones count as one."""
    if not isinstance(block_size, Sequence):
        return checked_count("block_size", block_size)
    sizes = tuple(checked_count("block_size", size) for size in block_size)
    if len(sizes) != modes:
        raise InvalidValueError("block_size", sizes, f"one number or one per mode, {modes}, needed")
    return sizes[0] if len(set(sizes)) == 1 else sizes


@dataclass(frozen=True)
class BlockPath:
    """A flow at chosen times (reduced clock): states, loss and learned fractions of each mode.

    `states` holds the `Coordinates` of all times, stacked along a first axis; `linear[i, k]` =
    E[f g_k]/E[y g_k] is the learned fraction of mode k's linear part and `cubic[i, k]` that of its
    third Hermite coefficient.
    """

    times: Float[np.ndarray, " times"]
    states: Coordinates
    loss: Float[np.ndarray, " times"]
    linear: Float[np.ndarray, "times mode"]
    cubic: Float[np.ndarray, "times mode"]


@float64
def block_loss(network: BlockNetwork, state: Coordinates) -> float:
    """½E|f − y|² of a state.

    **Arguments:**

    - `network`: a `BlockNetwork`.
    - `state`: its `Coordinates`.

    **Returns:** the loss, averaged over Gaussian inputs.

    >>> network = BlockNetwork("tanh", depth=4, betas=(1, 0.3, 0.08), block_size=20)
    >>> round(block_loss(network, network.aligned(0.05)), 7)
    0.2161289
    """
    return float(_loss(network.activation, network.problem(), _arrays(state)))


@float64
def block_velocity(network: BlockNetwork, state: Coordinates) -> Coordinates:
    """dx/dt in reduced time t = s/N_B.

    **Arguments:**

    - `network`: a `BlockNetwork`; its closures apply.
    - `state`: its `Coordinates`.

    **Returns:** `Coordinates` of the velocity; frozen entries are 0.
    """
    found = _velocity(network.activation, network.problem(), _arrays(state))
    return jax.tree.map(np.asarray, found)


@float64
def block_escape(
    network: BlockNetwork,
    state: Coordinates,
    level: float,
    *,
    quantity: Quantity = "scale",
    mode: int = 1,
    t_max: float | None = None,
    rtol: float = RELATIVE_TOLERANCE,
) -> Arrival:
    """When the flow from `state` first reaches `level`, in reduced time, and its state then.

    Cost: about 60 steps of 14 gradients; 24 586 nodes with three modes, 2 s.

    **Arguments:**

    - `network`: a `BlockNetwork`; its closures apply.
    - `state`: the `Coordinates` at time 0.
    - `level`: the value of `quantity` to reach; for "loss" a fraction of the loss at the start.
    - `quantity`: "scale" (A_1[mode, mode] = X_{1,mode}), "loss", "linear" or "cubic" (learned
        fractions of `mode`).
    - `mode`: which mode is watched, counted from 1.
    - `t_max`: a level not reached by this reduced time is an error; by default 30 times the initial
        |x|/|dx/dt|.
    - `rtol`: relative tolerance of the solver.

    **Returns:** an `Arrival`: `time` in reduced time and the `state` then.

    >>> betas = (1, 0.3, 0.08)
    >>> network = BlockNetwork("tanh", depth=4, betas=betas, block_size=20, spacing=0.42)
    >>> round(float(block_escape(network, network.aligned(0.05), 0.3).time), 6)
    53.386497
    """
    if not 1 <= mode <= network.modes:
        raise InvalidValueError("mode", mode, f"modes are counted from 1 to {network.modes}")
    if quantity == "loss":
        level = level * block_loss(network, state)
    return arrive(
        network.activation,
        network.problem(),
        state,
        Crossing(quantity, mode - 1),
        level,
        t_max=patience(network, state) if t_max is None else t_max,
        rtol=rtol,
    )


def patience(network: BlockNetwork, state: Coordinates) -> float:
    """30 |x|/|dx/dt|, a reduced time by which a flow from `state` has long left its plateau."""
    speed = block_velocity(network, state)
    sizes = [np.sqrt(sum(np.sum(part**2) for part in x)) for x in (state, speed)]
    if sizes[1] == 0.0:
        raise InvalidValueError("state", "at rest", "a flow that starts nowhere arrives nowhere")
    return float(30.0 * sizes[0] / sizes[1])


@float64
def block_path(
    network: BlockNetwork,
    state: Coordinates,
    times: Sequence[float] | Float[np.ndarray, " times"],
    *,
    rtol: float = 1e-10,
) -> BlockPath:
    """The flow from `state` at increasing `times` (reduced clock).

    Cost: while the loss still falls fast, as `block_escape`; afterwards stability limits the step
    to about 0.4, that is 35 gradients per unit of time.

    **Arguments:**

    - `network`: a `BlockNetwork`; its closures apply.
    - `state`: the `Coordinates` at time 0.
    - `times`: increasing reduced times.
    - `rtol`: relative tolerance of the solver.

    **Returns:** a `BlockPath`: states, loss and learned fractions at `times`.
    """
    problem, sigma = network.problem(), network.activation
    grid = np.asarray(times, dtype=np.float64)
    states = follow(sigma, problem, state, grid, rtol=rtol)
    batched = jax.jit(
        lambda points: jax.lax.map(
            lambda x: (
                loss(sigma, problem, x),
                *(
                    jnp.stack([watched(sigma, problem, Crossing(q, k), x) for k in modes])
                    for q in ("linear", "cubic")
                ),
            ),
            points,
        )
    )
    modes = range(network.modes)
    found = batched(_arrays(states))
    return BlockPath(grid, states, *(np.asarray(part) for part in found))


_loss = jax.jit(loss, static_argnums=0)
_velocity = jax.jit(velocity, static_argnums=0)


def _arrays(x: Coordinates) -> Coordinates:
    return Coordinates(*(jnp.asarray(part) for part in x))
