"""Other libraries: scikit-learn estimators, Gram-only steps for optax and PyTorch."""
