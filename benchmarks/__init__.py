"""Benchmarks: `python -m benchmarks` makes its own data, races streamnb against its peers and prints the tables."""
