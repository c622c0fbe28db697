"""The device, a pool of worker processes, and signals."""
