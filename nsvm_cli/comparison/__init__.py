"""Comparison of many runs: records, intervals, tests, ranks, tables and figures."""
