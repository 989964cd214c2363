"""A page that shows simulations: one file with all data, in the style of the dashboard."""

from brain.simulator.report.page import page

__all__ = ["page"]
