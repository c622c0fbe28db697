"""The compiled engine: Numba compiles stretches of many steps into one function each.

It supports small networks, fully connected or with two convolutions (see ``nsvm_cli.engines.coverage``).

A stretch may end after any step. A value that is kept after a step is therefore computed by the same
function, in the same order, both at the end of a step and at the beginning of the next stretch. The compiler
may rearrange a sum differently in each place where it inlines a function; ``jit_in_order`` prevents this.
"""
