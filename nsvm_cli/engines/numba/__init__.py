"""The compiled engine: Numba compiles stretches of many steps into one function each.

It covers small networks, fully connected or with two convolutions (see ``nsvm_cli.engines.coverage``).

A stretch may end after any step. A value that outlives a step is therefore computed by one function, in one
order, both when a step ends and when the next stretch begins. The compiler may rearrange a sum differently
wherever it inlines a function; ``jit_in_order`` forbids that.
"""
