"""Benchmarks: what is measured, both sides in one run. `python -m benchmarks` lists and runs them."""
