"""The programs of the stack, run for tests: Prometheus alone, or all of it as `make stack` does."""
