"""The posterior of a quartic action: couplings of the fluctuations of test outputs (6.80)-(6.88).

Given training outputs y the test outputs are z = m + w, m the mean of the quadratic part alone
(6.81). Written in w, the quartic term of the action has a linear, a quadratic, a cubic and a
quartic part (6.86); to first order in v they shift the mean by ⟨⟨w Q⟩⟩ (6.87). The closed forms
that `predict_outputs` uses need no such couplings; they agree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.theory.statistics._couplings import QuarticAction


@dataclass(frozen=True, eq=False)
class PosteriorCouplings:
    """Q(w), linear to quartic in the fluctuations w_jβ of the outputs on the test inputs (6.86).

    `naive_mean` is m (6.81) and `naive_covariance` 𝔾 (6.82), those of the quadratic part of the
    action. Q(w) = `linear`[j, b] w_jb + `quadratic`[j, b, k, c] w_jb w_kc + `cubic`[b, c, k, d]
    Σ_j w_jb w_jc w_kd + `quartic`[b, c, d, e] Σ_jk w_jb w_jc w_kd w_ke.
    """

    naive_mean: Float[np.ndarray, "test outputs"]
    naive_covariance: Float[np.ndarray, "test test"]
    linear: Float[np.ndarray, "outputs test"]
    quadratic: Float[np.ndarray, "outputs test outputs test"]
    cubic: Float[np.ndarray, "test test outputs test"]
    quartic: Float[np.ndarray, "test test test test"]

    def interaction(self, w: Float[np.ndarray, "outputs test"]) -> float:
        """Q(w) − Q(0), what the quartic term of the action adds to the log density (6.85)."""
        squares = np.einsum("jb,jc->bc", w, w)
        return float(
            np.sum(self.linear * w)
            + np.einsum("jbkc,jb,kc->", self.quadratic, w, w)
            + np.einsum("bckd,bc,kd->", self.cubic, squares, w)
            + np.einsum("bcde,bc,de->", self.quartic, squares, squares)
        )

    @property
    def mean(self) -> Float[np.ndarray, "test outputs"]:
        """The posterior mean m + ⟨⟨w Q⟩⟩ to first order in v (6.88)."""
        G, outputs = self.naive_covariance, self.linear.shape[0]
        # ⟨⟨w_ia w_jb w_jc w_kd⟩⟩ summed over j: n_L G_bc G_ad for k = i, and twice G_ab G_cd.
        pulled = self.linear + outputs * np.einsum("bckd,bc->kd", self.cubic, G)
        crossed = 2.0 * np.einsum("bckd,cd->kb", self.cubic, G)
        return self.naive_mean + G @ (pulled + crossed).T


def posterior_couplings(
    action: QuarticAction, y: Float[np.ndarray, "train outputs"]
) -> PosteriorCouplings:
    """The action of the test outputs given the training outputs, to first order in v (6.80)-(6.88).

    **Arguments:**

    - `action`: of all n_L output neurons on training and then test inputs: `next_action` with
        `neurons` = n_L. With the leading couplings, m lacks terms of order 1/n.
    - `y`: targets of the training inputs, without noise.

    **Returns:** `PosteriorCouplings`. Cost: N⁴ n_L.

    >>> from dynagram.theory.statistics import leading_action
    >>> K = np.array([[1.0, 0.5], [0.5, 1.0]])
    >>> V = np.einsum("ac,bd->abcd", K, K) + np.einsum("ad,bc->abcd", K, K)
    >>> action = leading_action(K, V, fan_in=10, neurons=1)
    >>> found = posterior_couplings(action, np.array([[2.0]]))
    >>> found.naive_mean.round(6), found.quartic.ravel().round(6)        # V^{1111}/(8n)
    (array([[1.]]), array([0.044444]))
    """
    train, outputs = y.shape
    samples = action.propagator.shape[0]
    if outputs != action.neurons or train >= samples:
        allowed = f"expected {action.neurons} outputs on fewer than {samples} training inputs"
        raise InvalidValueError("shape of y", y.shape, allowed)
    test = slice(train, None)
    # Conditioning in terms of the inverse: its test block is the inverse of 𝔾.
    rest = np.linalg.inv(action.quadratic[test, test])
    naive = -rest @ action.quadratic[test, :train] @ y
    phi = np.concatenate([y, naive])
    pairs = phi @ phi.T
    v = action.quartic
    one = np.einsum("bacd,aj,cd->jb", v[test], phi, pairs)
    same = np.einsum("bcad,ad->bc", v[test, test], pairs)
    across = np.einsum("baec,aj,ck->jbke", v[test, :, test], phi, phi)
    return PosteriorCouplings(
        naive,
        0.5 * (rest + rest.T),
        0.5 * one,
        0.25 * np.einsum("jk,bc->jbkc", np.eye(outputs), same) + 0.5 * across,
        0.5 * np.einsum("bcda,ak->bckd", v[test, test, test], phi),
        0.125 * v[test, test, test, test],
    )
