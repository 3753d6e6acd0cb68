"""What the rows of `benchmarks.cuda` compute, once per library: `in_<library>.py` has a class with the same methods.

A method returns a call to time, whose result `wait` waits for, or None where the library has nothing to compare.
"""
