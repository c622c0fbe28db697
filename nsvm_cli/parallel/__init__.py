"""Processes and devices: torch.distributed, a pool of workers, signals."""
