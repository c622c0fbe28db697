"""The paper's experiments: reproducing them, their baselines and their figure."""
