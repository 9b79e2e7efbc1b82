"""The version of this package, for its metadata, for results and for `hil --version`."""

__version__ = "0.2.0.dev0"
