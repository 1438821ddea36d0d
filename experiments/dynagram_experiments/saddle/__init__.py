"""Escape from the saddle at small weights: the figures of Rawal & DeWeese, and our forecasts."""
