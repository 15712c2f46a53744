"""What people look at: one self-contained HTML page of a burst, its results and their honesty."""

from .page import write_demo_page

__all__ = ["write_demo_page"]
