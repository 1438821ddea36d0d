"""One network's signals, NTK, dNTK and ddNTKs."""
