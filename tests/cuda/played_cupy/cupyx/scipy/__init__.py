"""SciPy's own."""
