"""Draft models that are shipped, each in a folder with its card."""
