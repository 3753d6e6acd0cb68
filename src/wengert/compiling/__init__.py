"""compile(): functions that are traced once and run as programs."""
