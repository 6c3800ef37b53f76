"""A cluster that does not exist: cost models, arrivals, replicas, and the production decisions on simulated time."""
