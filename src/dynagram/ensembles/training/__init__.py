"""The parts of `dynagram.ensembles.train`: specification, losses, batches, loops, failures."""
