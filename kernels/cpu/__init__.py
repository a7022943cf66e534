"""What Python decides for the CPU kernels. Nothing else in here is Python."""
