"""Which pool a request belongs to, and which replica of it: pure decisions."""
