"""streamnb."""
