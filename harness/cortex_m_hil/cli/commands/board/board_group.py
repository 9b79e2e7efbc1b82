"""The group of commands `hil board`, to which each module of this folder adds its commands."""

from __future__ import annotations

from cortex_m_hil.cli.app import group

board = group()
