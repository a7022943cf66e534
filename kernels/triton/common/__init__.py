"""What the kernels of several operations share: random numbers, elementary functions, ways to divide the work."""

# For the compiler. The default for fused multiply-adds differs between versions of Triton.
OPTIONS = {"num_warps": 4, "enable_fp_fusion": True}
