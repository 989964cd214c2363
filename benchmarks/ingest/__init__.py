"""What it costs to take telemetry in, beside a plain service and stores of time series."""
