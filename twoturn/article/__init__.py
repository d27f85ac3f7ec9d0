"""The article: one set of data, one template per section, one text per language.

`gather` collects what a campaign has to tell, as raw numbers and names; it reads no file and knows
no language. `render` puts it into words. A section is a template in `workflow/templates/` and one
function that fills it, both named in `sections.SECTIONS`; a function that returns None leaves its
section out. Verbs of comparison come from `claims` alone; the templates hold none, and no number
either.
"""

from __future__ import annotations

import re

import jinja2

from twoturn import i18n
from twoturn.article.data import Data, Scored, gather
from twoturn.article.sections import SECTIONS
from twoturn.article.view import View

__all__ = ["TEMPLATES", "Data", "Scored", "gather", "metadata", "render"]

TEMPLATES = i18n.ROOT / "workflow" / "templates"


def render(language: str, data: Data) -> str:
    """The article as Markdown. Raises UserError where a translation is missing."""
    view = View(language)
    templates = _environment(view)
    parts = [metadata(data)]
    for name, fill in SECTIONS:
        filled = fill(data, view)
        contexts = filled if isinstance(filled, list) else [filled] if filled is not None else []
        template = templates.get_template(f"{name}.md.j2")
        parts += [template.render(context) for context in contexts]
    text = "\n\n".join(part.strip() for part in parts)
    text = re.sub(r"^((?:#|!\[).*)$", r"\n\1\n", text, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text) + "\n"


def metadata(data: Data) -> str:
    """The comment that opens every article, the same in all languages."""
    first, last = (
        moment.strftime("%Y-%m-%dT%H:%MZ") if moment else "" for moment in (data.first, data.last)
    )
    facts = {
        "campaign": data.name or data.campaign,
        "fingerprints": ", ".join(
            f"{one.series.name} {one.series.fingerprint}" for one in data.measured
        ),
        "measured": f"{first}/{last}" if first else "nothing",
    }
    text = "; ".join(f"{key}: {value}" for key, value in facts.items())
    return "<!-- " + re.sub(r"-(?=-)|(?<=-)-|>", "_", text) + " -->"


def _environment(view: View) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        extensions=["jinja2.ext.i18n"],
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # Markdown: names are escaped where they enter
    )
    environment.policies["ext.i18n.trimmed"] = True
    words = view.words
    environment.install_gettext_callables(  # type: ignore[attr-defined]
        words.gettext,
        words.ngettext,
        newstyle=True,
        pgettext=words.pgettext,
        npgettext=words.npgettext,
    )
    environment.globals["table"] = view.table
    return environment
