"""Studies whose results RESULTS.md shows."""
