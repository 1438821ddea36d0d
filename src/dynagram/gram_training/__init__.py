"""Gram-only training: optimiser steps whose part that leaves WᵀW unchanged is rotated away."""
