"""A result as a page of its own: one file that loads nothing."""

from placeproof.report.page.page import page

__all__ = ["page"]
