"""How to initialise: the critical (C_b, C_W) of known activations and of one's own."""

import jax.numpy as jnp

from dynagram.theory.criticality import critical_initialisation, critical_points


def my_activation(z):
    """Any JAX-traceable function of one number."""
    return z * jnp.exp(-(z**2) / 10)


print(f"{'activation':16} {'class':16} {'C_b':>10} {'C_W':>10} {'K*':>10}")
for choice in ("relu", "tanh", "gelu", "swish", "elu", my_activation):
    point = critical_initialisation(choice)
    K_star = "any" if point.K_star is None else f"{point.K_star:.6f}"
    print(f"{point.activation:16} {point.kind:16} {point.C_b:10.6f} {point.C_W:10.6f} {K_star:>10}")

# ReLU is Kaiming's value; the odd, saturating activation of ours falls into the class of tanh.
assert critical_initialisation("relu").C_W == 2.0
ours = critical_initialisation(my_activation)
assert (ours.kind, ours.C_b) == ("K*=0", 0.0)
assert abs(ours.C_W - 1.0) < 1e-12

# Some activations have no critical point at all.
assert critical_points("sigmoid") == ()
