"""`python -m bench` runs all benchmarks and prints their tables."""

from bench import decisions

if __name__ == "__main__":
    print("Decisions (absolute times mean little on a shared machine; read the ratios)\n")
    decisions.run()
