"""What people look at: one self-contained HTML page of a burst, its results and their honesty."""

from .layers import shown_part
from .page import write_demo_page
from .product_page import VALUED, Report, write_report

__all__ = ["VALUED", "Report", "shown_part", "write_demo_page", "write_report"]
