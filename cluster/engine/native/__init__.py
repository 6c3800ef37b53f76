"""Llama-family forward pass on CPU: C kernels shipped as LLVM IR and compiled for the host at start-up."""
