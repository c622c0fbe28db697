"""Devices, a worker pool, signals."""
