"""What computes plans faster, bit for bit."""
