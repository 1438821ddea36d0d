"""Trained networks: outputs after gradient descent at infinite width and to order 1/n."""
