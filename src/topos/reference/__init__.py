"""The NumPy kernels that define the bits."""
