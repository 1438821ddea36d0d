"""Training as a dynamics of fields: what Nordio's paper states and what it expects."""
