"""Settings: registries that map names to classes, and values with types and ranges."""
