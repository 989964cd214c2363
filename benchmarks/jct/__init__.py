"""Measures job completion times in the simulators of Pollux and Sia: ``make bench-jct``."""
