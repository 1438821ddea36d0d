"""Weight Gram matrices, virtual covariance, target linearity, gradient outer products."""
