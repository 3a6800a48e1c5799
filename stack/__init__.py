"""Collector, Jaeger and Prometheus on this machine, without Docker: `make stack`, or `python -m stack up`."""
