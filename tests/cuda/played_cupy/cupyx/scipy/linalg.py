"""For one matrix at a time."""

from scipy.linalg import lu_factor, lu_solve, solve_triangular  # noqa: F401
