"""The private channel between verifiers and drafters: messages of `cluster.messages` over ZeroMQ or in memory."""
