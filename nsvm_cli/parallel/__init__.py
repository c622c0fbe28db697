"""Devices, worker processes and signals."""
