"""The Gram chain: tensors of networks made of blocks, at infinite width and at order 1/n."""
