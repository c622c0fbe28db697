"""One run: from settings to objects, the loop over t, callbacks, checkpoints, the model file, evaluation."""
