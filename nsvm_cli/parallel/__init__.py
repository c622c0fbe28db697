"""Processes and devices: torch.distributed, a worker pool, signals."""
