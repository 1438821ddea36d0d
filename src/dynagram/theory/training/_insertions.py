"""What finite width adds to the motion of outputs, by coefficients on training samples.

An optimiser that is linear in past gradients moves parameters by
θ(t) − θ(0) = −Λ [∂z_A a_A − ∂²z_A Λ∂z_B b_AB + …] with coefficients a_A = W[ε_A] and
b_AB = W[ε_A a_B], W its sum over the past. Outputs and tangent kernel follow by contraction with
the NTK, dNTK and ddNTKs of the start: docs/derivations/any-loss.md (D13.3)-(D13.6). Here the
differentials are those of order 1/n, with the Kronecker deltas of their outputs written out. An
index A is a training sample and an output; arrays have the sample first.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dynagram.theory.training._contraction import Tensors

Coefficients = Float[Array, "train outputs"]
Pairs = Float[Array, "train outputs train outputs"]
Rows = Float[Array, "sample outputs"]


class Blocks(NamedTuple):
    """Blocks of the tensors: `a` a training slot, `s` a row that is predicted, `x` any sample.

    Slots are in the printed order. Memory: nine blocks of N_A³ N numbers, five of N_A² N² and one
    of N_A N³.
    """

    H1_sa: Array
    F_xsxa: Array
    P_asax: Array
    P_saax: Array
    Q_asax: Array
    Q_aasx: Array
    Q_saax: Array
    R_saaa: Array
    R_asaa: Array
    R_aaas: Array
    S_aasa: Array
    S_saaa: Array
    T_asaa: Array
    T_saaa: Array
    U_aaas: Array
    U_saaa: Array

    @classmethod
    def of(cls, tensors: Tensors, training_samples: int) -> Blocks:
        """The blocks of the tensors on all samples, training ones first."""
        slots = {"a": slice(0, training_samples), "s": slice(None), "x": slice(None)}
        held = {name: np.asarray(tensors[name]) for name in ("H1", *"FPQRSTU")}
        return cls(
            *(jnp.asarray(held[name][tuple(slots[letter] for letter in pattern)])
              for name, _, pattern in (field.partition("_") for field in cls._fields))
        )  # fmt: skip

    def for_training(self) -> Blocks:
        """The rows of training samples only."""
        samples = self.H1_sa.shape[1]
        return Blocks(*(_cut(block, field, samples) for field, block in self._asdict().items()))


class Given(NamedTuple):
    """What initial outputs say about a network's NTK and dNTK, to order 1/n, at one node.

    `kernel_siaj` is the part of ΔH that F correlates with them; the others are dNTKs contracted
    with u = K⁻¹z over their last index.
    """

    kernel_siaj: Float[Array, "row outputs train outputs"]
    P_asai: Array
    P_saai: Array
    Q_asai: Array
    Q_aasi: Array
    Q_saai: Array

    @classmethod
    def of(cls, blocks: Blocks, u: Rows, inverse: Float[Array, "sample sample"]) -> Given:
        """Of the dual outputs `u`; `inverse` is K⁻¹, which makes their products Wick products.

        Cost: N³N_A n_L, once for every node.
        """
        same = jnp.eye(u.shape[1])
        half = jnp.einsum("psqa,qj->psaj", blocks.F_xsxa, u)
        mean = jnp.einsum("psqa,pq->sa", blocks.F_xsxa, inverse)
        kernel = jnp.einsum("psaj,pi->siaj", half, u) - jnp.einsum("sa,ij->siaj", mean, same)
        return cls(kernel, *(jnp.einsum("abcd,di->abci", block, u) for block in blocks[2:7]))

    def for_training(self) -> Given:
        """The rows of training samples only."""
        samples = self.kernel_siaj.shape[2]
        return Given(*(_cut(block, field, samples) for field, block in self._asdict().items()))


def _cut(block: Array, field: str, samples: int) -> Array:
    """The first `samples` rows in the slot `s` of a field."""
    return jnp.take(block, jnp.arange(samples), axis=field.partition("_")[2].index("s"))


def moving_by_kernel(H: Float[Array, "sample train"], a: Coefficients) -> Rows:
    """−H a for an NTK that does not mix outputs."""
    return -H @ a


def moving_by_mixing_kernel(
    H: Float[Array, "sample outputs train outputs"], a: Coefficients
) -> Rows:
    """−H a for an NTK that mixes outputs."""
    return -jnp.einsum("siaj,aj->si", H, a)


def moving_by_dntk(given: Given, a: Coefficients, b: Pairs) -> Rows:
    """dH_A;sB b_AB + ½ dH_s;AB a_A a_B with dH = Σ_3 (P, Q)_0123 u_3."""
    history = (
        jnp.einsum("asbk,akbi->si", given.P_asai, b)
        + jnp.einsum("asbj,aibj->si", given.Q_asai, b)
        + jnp.einsum("absi,akbk->si", given.Q_aasi, b)
    )
    square = a @ a.T
    now = 0.5 * jnp.einsum("sabi,ab->si", given.P_saai, square)
    return history + now + jnp.einsum("sabj,ai,bj->si", given.Q_saai, a, a)


def moving_by_first_ddntk(blocks: Blocks, a: Coefficients) -> Rows:
    """−(1/6) ddI_s;ABC a_A a_B a_C."""
    return -0.5 * jnp.einsum("sabc,bc->sa", blocks.R_saaa, a @ a.T) @ a


def moving_by_second_ddntk(blocks: Blocks, a: Coefficients, b: Pairs) -> Rows:
    """−ddII_sB;AC a_A b_BC."""
    trace = jnp.einsum("bkck->bc", b)
    push = jnp.einsum("sbac,abic->si", blocks.S_saaa, jnp.einsum("ak,bick->abic", a, b))
    push += jnp.einsum("sacb,bc->sa", blocks.T_saaa, trace) @ a
    push += jnp.einsum("scba,abci->si", blocks.U_saaa, jnp.einsum("ak,bkci->abci", a, b))
    return -push


def history_of_first_ddntk(blocks: Blocks, epsilon: Coefficients, a: Coefficients) -> Rows:
    """½ ddI_A;sBC ε_A a_B a_C, which is summed over the past and taken off."""
    push = 0.5 * jnp.einsum("asbc,bc->as", blocks.R_asaa, a @ a.T).T @ epsilon
    return push + jnp.einsum("abcs,ab->cs", blocks.R_aaas, epsilon @ a.T).T @ a


def history_of_second_ddntk(blocks: Blocks, epsilon: Coefficients, b: Pairs) -> Rows:
    """ddII_AB;sC ε_A b_BC, which is summed over the past and taken off."""
    trace = jnp.einsum("bkck->bc", b)
    push = jnp.einsum("absc,abci->si", blocks.S_aasa, jnp.einsum("ak,bkci->abci", epsilon, b))
    push += jnp.einsum("ascb,bc->as", blocks.T_asaa, trace).T @ epsilon
    push += jnp.einsum("acbs,abic->si", blocks.U_aaas, jnp.einsum("ak,bick->abic", epsilon, b))
    return push
