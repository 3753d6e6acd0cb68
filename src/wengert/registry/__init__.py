"""One record per op: its rules, its samples, its documentation."""
