"""The article as one HTML page: self-contained, without a script, loading nothing from anywhere.

The page holds what the Markdown holds and nothing else. Pictures go in as `data:` addresses, so
that each keeps its own ids and has a text as its alternative; a content policy forbids all else.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import jinja2
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup

from twoturn import i18n
from twoturn.errors import UserError
from twoturn.numbers import NO_BREAK_SPACE

TEMPLATES = i18n.ROOT / "workflow" / "templates"

_COMMENT = re.compile(r"<!-- (.*?) -->\n")
_HANGING = {"pl": re.compile(r"\b([aiouwz]) ", re.IGNORECASE)}
"""Words of one letter, which end no line in Polish."""


def render(text: str, language: str, picture: Callable[[str], bytes]) -> str:
    """The page of an article in Markdown.

    picture: the SVG behind a link of the article. Raises UserError where it is not there.
    """
    described = _COMMENT.match(text)
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    markdown.add_render_rule("image", _image)
    markdown.add_render_rule("table_open", _table_open)
    markdown.add_render_rule("table_close", _table_close)
    tokens = markdown.parse(text[described.end() :] if described else text)
    headings = _headings(tokens)
    _figures(tokens)
    if language in _HANGING:
        _tie(tokens, _HANGING[language])
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
    )
    return environment.get_template("page.html.j2").render(
        language=language.replace("_", "-"),
        described=described[1] if described else "",
        title=next((title for level, title, _ in headings if level == 1), ""),
        style=Markup((TEMPLATES / "page.css").read_text(encoding="utf-8")),
        contents=i18n.translator(language).gettext("Contents"),
        sections=[(title, anchor) for level, title, anchor in headings if level == 2],
        body=Markup(markdown.renderer.render(tokens, markdown.options, {"picture": picture})),
    )


def _headings(tokens: Sequence[Token]) -> list[tuple[int, str, str]]:
    """(level, text, anchor) of every heading, whose anchor is set."""
    found: list[tuple[int, str, str]] = []
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            title = "".join(child.content for child in inline.children or [])
            anchor = "-".join(re.findall(r"\w+", title.lower()))
            while anchor in {known for _, _, known in found}:
                anchor += "-"
            opening.attrSet("id", anchor)
            found.append((int(opening.tag[1]), title, anchor))
    return found


def _figures(tokens: Sequence[Token]) -> None:
    """A paragraph that holds a picture alone is a figure."""
    for opening, inline, closing in zip(tokens, tokens[1:], tokens[2:], strict=False):
        children = inline.children or []
        if opening.type == "paragraph_open" and [child.type for child in children] == ["image"]:
            opening.tag = closing.tag = "figure"


def _tie(tokens: Sequence[Token], hanging: re.Pattern[str]) -> None:
    """Ties such words to what follows."""
    for child in (child for token in tokens for child in token.children or []):
        if child.type == "text":
            child.content = hanging.sub(rf"\1{NO_BREAK_SPACE}", child.content)


def _image(self: RendererHTML, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    token = tokens[index]
    svg = env["picture"](str(token.attrs["src"]))
    if not svg:
        raise UserError("there is no such picture", file=str(token.attrs["src"]))
    source = "data:image/svg+xml;base64," + base64.b64encode(svg).decode()
    alt = self.renderInlineAsText(token.children, options, env)
    return str(Markup('<img src="{}" alt="{}">').format(source, alt))


def _table_open(*_: Any) -> str:
    return '<div class="table" tabindex="0"><table>\n'


def _table_close(*_: Any) -> str:
    return "</table></div>\n"
