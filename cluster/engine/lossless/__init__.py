"""The self-test of promise one: the same token ids with and without speculation, however a request is served."""
