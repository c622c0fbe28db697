"""The compiled engine: whole stretches of steps as functions of machine code, which Numba makes.

It covers small networks, fully connected or with two convolutions (see ``coverage``).

A stretch may end after any step. So what outlives a step is computed by one function, in one order, wherever
it is needed: when the step ends, and when the next stretch begins. The compiler may rearrange a sum anew at
each place that a function is inlined into; ``jit_in_order`` forbids it.
"""
