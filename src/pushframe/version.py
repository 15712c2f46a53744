"""The version, read by the package, its products and the build."""

__version__ = "0.1.0"
