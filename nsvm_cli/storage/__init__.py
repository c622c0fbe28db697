"""Files on disk: atomic files and locks, run directories, tensor files, state dicts. No training."""
