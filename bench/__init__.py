"""Benchmarks. Ratios are what counts: every figure stands beside something outside, measured in the same run."""
