"""Kernels, networks, the feature map F_theta, objectives, optimizers, and the trained model."""
