"""Settings from configuration files and overrides: the only user of Hydra's composition."""
