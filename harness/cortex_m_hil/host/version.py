"""The version of this package, for its metadata, its runners' results and `hil --version`."""

__version__ = "0.2.0.dev0"
