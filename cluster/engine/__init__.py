"""The inference engine: scheduler, paged KV cache, forward pass, sampling, drafters and output."""
