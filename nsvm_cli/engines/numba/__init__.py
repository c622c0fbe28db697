"""The compiled engine, which covers small networks. Numba compiles *stretches* of many steps.

A stretch may end after any step. Values that are kept after a step are therefore computed in a fixed order
(see ``jit_in_order``), so that their bits do not depend on where a stretch ends.
"""
