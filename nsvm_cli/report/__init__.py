"""Console output and training curves."""
