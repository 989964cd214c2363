"""A page that shows simulations: one file with everything in it, in the look of the dashboard."""

from brain.simulator.report.page import page

__all__ = ["page"]
