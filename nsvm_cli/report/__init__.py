"""What a person sees of a run: the console and the training curves."""
