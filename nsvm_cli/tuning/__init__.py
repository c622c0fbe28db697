"""Searches for hyperparameters on validation data."""
