"""Trained ensembles: one job, its loops, what is recorded, pairs as control variates."""
