"""Benchmarks. Ratios count: every figure stands beside something outside, measured in the same run."""
