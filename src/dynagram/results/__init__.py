"""What computations return: estimates, tensors, outputs, regimes, comparisons, files."""
