"""The group of commands `hil dev`, to which each module of this folder adds its commands."""

from __future__ import annotations

from cortex_m_hil.cli.app import group

dev = group()
