"""One run: building it from settings, the loop over t, callbacks, checkpoints."""
