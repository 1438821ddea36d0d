"""Trained ensembles: specification, losses, batches, loops, failures, what is measured."""
