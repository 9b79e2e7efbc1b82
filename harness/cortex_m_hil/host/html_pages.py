"""Pages for a browser: one self-contained file each. Their texts come from targets and programs, and are not trusted.

The template escapes all values. The script gets JSON, and puts it into the page only as text; a policy in the page
forbids any other script, and any request.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any, Final

from cortex_m_hil.errors.text import number_text

_ESCAPED: Final = {ord(one): f"\\u{ord(one):04x}" for one in "<>&\u2028\u2029"}


def rendered(package: str, name: str, data: Any, *, style: str = "", **values: Any) -> str:
    """Return the page of a template `index.html.jinja` in the folder `page` of a package, in UTF-8.

    Args:
        package: the package's dotted name.
        name: the name of style and script beside the template: `name.css` and `name.js`.
        data: what the script gets, as values for JSON.
        style: CSS before that of the file.
        **values: what the template gets, with `style`, `script`, `policy` and `data`.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader(package, "page")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["number"] = number_text
    own, script = (loader.get_source(environment, f"{name}.{kind}")[0] for kind in ("css", "js"))
    return environment.get_template("index.html.jinja").render(
        style=style + own, script=script, policy=_policy(style + own, script), data=_embedded(data), **values
    )


def _policy(style: str, script: str) -> str:
    """Return the policy for browsers: the page may use this style and this script, and nothing else."""
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script))
    of_style, of_script = (f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; style-src {of_style}; script-src {of_script}; base-uri 'none'; form-action 'none'"


def _embedded(fields: Any) -> str:
    """Return JSON that cannot begin or end an element of HTML, whatever its texts are."""
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False, allow_nan=False).translate(_ESCAPED)
