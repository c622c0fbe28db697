"""Kernels, networks, the feature map F_theta, objectives, optimizers, and the trained model."""

from nsvm_cli.models import composed_kernels  # noqa: F401  # registers its kernels
