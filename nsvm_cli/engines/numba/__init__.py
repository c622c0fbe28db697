"""The engine ``numba``, whose compiled training loops (see ``stretches``) support small networks.

A call of a loop may end after any step. Values that are kept after a step are therefore computed in a fixed
order (see ``jit_in_order``), so that their bits do not depend on where a call ends.
"""
