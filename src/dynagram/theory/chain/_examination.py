"""A network of blocks examined before training: its birth, its depth law, other ways to scale it.

Growth of the stream with depth, similarity of tokens and gradients per layer, with the spread
between networks of this width, beside what GPT-2's 1/√(2L), depth-muP and norms on the stream
would give at this depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from dynagram._memory import require_memory
from dynagram._precision import float64
from dynagram.errors import InvalidTypeError
from dynagram.networks._chain import Chain
from dynagram.networks._checks import checked_choice
from dynagram.networks.blocks._composite import Embedding, Residual
from dynagram.networks.blocks._nonlinear import RMSNorm
from dynagram.results._table import Grid, short
from dynagram.theory.chain._backward import squared_gradients
from dynagram.theory.chain._birth import Birth, similarity_of, trace_birth
from dynagram.theory.chain._exponents import DepthLaw, depth_law
from dynagram.theory.chain._predict import has_attention
from dynagram.theory.chain._scalings import count_layers, scale_branches, scaled_variants

_FEW = 16  # branches of a network whose bands are cheap


@dataclass(frozen=True)
class Scaling:
    """One way to scale the network with depth, at infinite width, residual block by block.

    **Arguments:**

    - `name`: which.
    - `mean_squares`: of the stream before the first residual block and after each.
    - `similarities`: of the tokens there, None where inputs have one token.
    - `gradients`: squared gradients of the residual blocks.
    - `law`: powers of the depth, None where none is known.
    """

    name: str
    mean_squares: tuple[float, ...]
    similarities: tuple[float, ...] | None
    gradients: tuple[float, ...]
    law: DepthLaw | None

    @property
    def growth(self) -> float:
        """The mean square of the last stream over that of the first."""
        return self.mean_squares[-1] / self.mean_squares[0]

    @property
    def gradient_ratio(self) -> float:
        """The squared gradient of the first half of the blocks over that of the second."""
        half = max(len(self.gradients) // 2, 1)
        return sum(self.gradients[:half]) / sum(self.gradients[-half:])


@dataclass(frozen=True)
class Examination:
    """A network at birth, its depth law, and how other scalings compare; by `examine`."""

    birth: Birth
    law: DepthLaw | None
    scalings: tuple[Scaling, ...]
    layers: int
    notes: tuple[str, ...]

    @property
    def network(self) -> Chain:
        """The network examined."""
        return self.birth.network

    def summary(self) -> Grid:
        """A row for every scaling."""
        rows = []
        for scaling in self.scalings:
            alike, law = "–", scaling.law
            if scaling.similarities is not None:
                alike = f"{scaling.similarities[0]:.3f} → {scaling.similarities[-1]:.3f}"
            power = "–"
            if law is not None:
                power = _power(law)
            first, last = (short(scaling.mean_squares[i]) for i in (0, -1))
            ratio = short(scaling.gradient_ratio, 3)
            rows.append((scaling.name, f"{first} → {last}", alike, power, ratio))
        headings = (
            "scaling of branches", "mean square of the stream", "token similarity",
            "1 − similarity", "gradient², early/late",
        )  # fmt: skip
        return Grid(headings, tuple(rows), ("Infinite width.",), keys=1)

    def table(self) -> Any:
        """A rich table of the scalings."""
        return self.summary().rich()

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        scalings = [
            vars(scaling)
            | {
                "law": None if scaling.law is None else vars(scaling.law),
                "growth": scaling.growth,
                "gradient_ratio": scaling.gradient_ratio,
            }
            for scaling in self.scalings
        ]
        law = None if self.law is None else vars(self.law)
        return self.birth.to_dict() | {
            "layers": self.layers, "law": law, "scalings": scalings, "notes": self.notes,
        }  # fmt: skip

    def __repr__(self) -> str:
        return f"Examination({self.birth!r}; {len(self.scalings)} scalings)"

    def _repr_html_(self) -> str:
        return self.summary().html(repr(self))


def _power(law: DepthLaw) -> str:
    if law.norm == "post":
        return f"× {law.collapse:.3g} a layer"
    return f"depth^{-law.collapse:.2g}" if abs(law.collapse) > 1e-12 else "below any power"


@float64
def examine(
    network: Chain,
    x: Any = None,
    *,
    plain: Chain | None = None,
    bands: str | Sequence[int] = "cheap",
    seed: int = 0,
    samples: int = 2**10,
) -> Examination:
    """What depth does to this network before training, and what other scalings would do.

    **Arguments:**

    - `network`: a `Chain`.
    - `x`: inputs, a row each; by default one of different tokens, or of normal numbers.
    - `plain`: the network without any scaling of its branches with depth, from which the others
        are made; by default `network` with α = 1.
    - `bands`: which blocks get the spread of their gradient: numbers, "all", "ends" (the first and
        the last layer), "none" or "cheap": all of at most 16 branches without attention, else
        none. Each costs a run through all blocks.
    - `seed`, `samples`: of sampled heads.

    **Returns:** `Examination`. Cost: `trace_birth`, and a pass at infinite width for each scaling.
    GPT-2 small with four tokens: about ten seconds once compiled.

    >>> from dynagram.networks.blocks import Activate, Dense
    >>> block = Residual([RMSNorm(), Dense(64), Activate("relu"), Dense(32, C_W=2.0)])
    >>> net = Chain([Dense(32), *[block] * 8, RMSNorm(), Dense(1)], inputs=3)
    >>> found = examine(net, np.ones((1, 3)))
    >>> {scaling.name: round(scaling.growth, 3) for scaling in found.scalings}
    {'as given': 9.0, 'plain': 9.0, '1/√L, depth-muP': 2.0, '1/√L, GPT-2': 2.0, 'post-norm': 1.0}
    """
    if not isinstance(network, Chain):
        raise InvalidTypeError("network", type(network).__name__, "expected a Chain")
    inputs = typical_inputs(network) if x is None else np.asarray(x, dtype=np.float64)
    birth = trace_birth(network, inputs, bands=_banded(network, bands), seed=seed, samples=samples)
    base = scale_branches(network, 1.0) if plain is None else plain
    others = {"as given": network, **scaled_variants(base)}
    scalings = tuple(
        _scaling(name, other, inputs, seed, 2 * samples) for name, other in others.items()
    )
    layers, branches = count_layers(network)
    law = depth_law(network)
    notes = _notes(scalings[0], law, branches) if branches else ()
    return Examination(birth, law, scalings if branches else (), layers, notes)


def typical_inputs(network: Chain) -> Float[np.ndarray, "1 n_0"]:
    """One input: different tokens, or numbers with a mean square of 1."""
    require_memory("inputs of the network", network.input_size, 64.0 * network.input_size, "fewer")
    if isinstance(network.blocks[0], Embedding):
        tokens = np.arange(network.input_size) % network.blocks[0].vocabulary
        return tokens[None].astype(np.float64)
    rows = np.random.default_rng(0).normal(size=(1, network.input_size))
    return rows / np.sqrt(np.mean(rows**2))


def _banded(network: Chain, bands: str | Sequence[int]) -> list[int]:
    if not isinstance(bands, str):
        return list(bands)
    checked_choice("bands", bands, ("all", "ends", "none", "cheap"))
    learning = [i for i, block in enumerate(network.blocks) if not isinstance(block, RMSNorm)]
    residual = [i for i, block in enumerate(network.blocks) if isinstance(block, Residual)]
    layers, branches = count_layers(network)
    each = max(branches // max(layers, 1), 1)
    return {
        "all": learning,
        "ends": sorted({*residual[:each], *residual[-each:]}) or learning,
        "none": [],
        "cheap": [] if has_attention(network.blocks) or branches > _FEW else learning,
    }[bands]


def _scaling(name: str, network: Chain, x: np.ndarray, seed: int, samples: int) -> Scaling:
    count = x.shape[0] * network.positions
    back = squared_gradients(network, x, np.full(count, 1.0 / count), seed=seed, samples=samples)
    residual = [i for i, block in enumerate(network.blocks) if isinstance(block, Residual)]
    # On a stream with norms behind its branches the signal is what comes out of the norm.
    behind = [
        i + 1 if isinstance(network.blocks[i + 1], RMSNorm) and i != residual[-1] else i
        for i in residual
    ]
    law = depth_law(network)
    if behind and law is not None and law.norm == "post":
        behind[-1] = residual[-1] + 1
    places = [residual[0] - 1, *behind] if residual and residual[0] else behind
    squares = tuple(float(np.mean(np.diagonal(back.grams[i]))) for i in places)
    alike = [similarity_of(back.grams[i], x.shape[0]) for i in places]
    known = alike and np.all(np.isfinite(alike))
    gradients = tuple(float(sum(back.weights[i].values())) for i in residual)
    return Scaling(name, squares, tuple(alike) if known else None, gradients, law)


def _above(ratio: float, limit: float) -> bool:
    """Whether a ratio is above a limit; many are whole numbers, and rounding must not decide."""
    return ratio > limit * (1.0 + 1e-9)


def _notes(given: Scaling, law: DepthLaw | None, branches: int) -> tuple[str, ...]:
    """What stands out, in sentences."""
    first, last, steps = given.mean_squares[0], given.mean_squares[-1], len(given.mean_squares)
    notes = []
    if _above(given.growth, 4.0) and (law is None or law.norm == "pre"):
        wanted = ((2.0 - 1.0) * first / max(last - first, 1e-300)) ** 0.5
        notes.append(
            f"the stream grows {short(given.growth, 3)}-fold over {branches} branches; branches "
            f"{short(wanted, 2)} times as strong would double it"
        )
    if steps > 2 and _above(given.mean_squares[1], 3.0 * first):
        ratio = (given.mean_squares[1] - first) / first
        notes.append(
            f"the first branch adds {short(ratio, 2)} times what enters it: the input is soon "
            "outweighed"
        )
    if given.similarities is not None and given.similarities[-1] > 0.95:
        notes.append(
            f"tokens end {given.similarities[-1]:.3f} alike: later layers hardly tell them apart"
        )
    if law is not None:
        notes.append(law.words)
    if _above(given.gradient_ratio, 3.0):
        notes.append(
            f"early layers have {short(given.gradient_ratio, 2)} times the squared gradient of "
            "late ones"
        )
    return tuple(notes)
