"""Many runs beside each other: records, intervals, tests, ranks, tables and figures."""
