"""topos beside other systems on the same work: `python -m benchmarks`, or `make bench`."""
