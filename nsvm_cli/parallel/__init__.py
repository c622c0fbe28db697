"""The selection of a device, a pool of worker processes, and the handling of signals."""
