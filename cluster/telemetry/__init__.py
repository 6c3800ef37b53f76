"""Metrics: one table of names, and recorders that fill prometheus_client registries."""
