"""Studies of many runs: tuning, reproducing the paper, baselines, statistics."""
