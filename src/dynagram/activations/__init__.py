"""Activation functions: value, derivatives, kinks, Taylor data, parity, homogeneity (book §2.2).

An `Activation` wraps a JAX-traceable scalar function and knows what the theory needs of it. The
registry holds the usual ones by name; a user's own callable becomes one through `activation(f)`,
which finds its kinks, parity, homogeneity and growth numerically.
"""

from dynagram.activations import _catalogue as _catalogue
from dynagram.activations._analysis import analyse as analyse
from dynagram.activations._core import Activation as Activation
from dynagram.activations._core import Homogeneity as Homogeneity
from dynagram.activations._core import Kink as Kink
from dynagram.activations._registry import activation as activation
from dynagram.activations._registry import register as register
from dynagram.activations._registry import registered as registered
