"""Files on disk: atomic writes, locks, run directories, tensor files and state dicts."""
