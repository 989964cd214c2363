"""Measures the cost of ingesting telemetry, compared with a plain service and with stores of time
series.
"""
