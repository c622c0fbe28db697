"""Composition of settings from configuration files and overrides, by Hydra."""
