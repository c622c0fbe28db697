"""Many runs: tuning, reproducing the paper's tables, baselines, statistics."""
