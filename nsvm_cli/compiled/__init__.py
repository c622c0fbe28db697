"""The compiled engine: whole stretches of steps as one function of machine code, made by Numba.

It covers small fully connected networks; see ``coverage``. Nothing else depends on this room, except that a
run asks ``select`` who takes its steps.
"""
