"""Composition of settings from configuration files and overrides, with Hydra."""
