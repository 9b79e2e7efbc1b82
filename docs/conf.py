"""How Sphinx makes the site of these pages (make docs). Its source directory is the repository: README.md is a page."""

from __future__ import annotations

from typing import Final

project: Final = "executorch-cortex-m-hil"
root_doc: Final = "docs/index"
include_patterns: Final = ["*.md", "docs/*.md", "docs/index.rst", "examples/**.md", "firmware/**.md"]
exclude_patterns: Final = [".*", "build", "dist"]
extensions: Final = ["myst_parser"]
myst_heading_anchors: Final = 4  # levels; the anchors are GitHub's, so that the pages are right there too
highlight_language: Final = "text"  # of blocks that name none
html_theme: Final = "furo"
html_title: Final = "ExecuTorch on Cortex-M, hardware in the loop"
html_extra_path: Final = ["index.html"]
html_show_copyright: Final = False
html_copy_source: Final = False
