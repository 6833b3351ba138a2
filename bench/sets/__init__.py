"""Data sets of the benchmark: each module makes one kind of input from a seed, in several versions."""
