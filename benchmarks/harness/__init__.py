"""How benchmarks run, what they return and where it goes; knows nothing of what they measure."""
