"""What tracing costs, measured against the OpenTelemetry SDK: `make bench`."""
