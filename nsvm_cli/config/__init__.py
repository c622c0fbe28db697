"""Settings: registries that map names to classes, and typed, range-checked values."""
