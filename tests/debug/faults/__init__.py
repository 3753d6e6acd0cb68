"""Programs with a planted fault. The line that is at fault ends in a comment that says `fault`."""
