"""Gram matrices, target linearity and virtual covariance: the experiments of Cha et al."""
