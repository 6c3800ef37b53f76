"""A whole application whose processes are killed at random while clients use it: `python -m tests.chaos`."""
