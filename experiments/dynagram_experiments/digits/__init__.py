"""Predictions of the book for trained networks, tried on handwritten digits."""
