"""dynagram."""
