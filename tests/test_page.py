"""The page of an article: valid, whole, self-contained, and holding what the Markdown holds."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import html5lib
import pandas as pd
import pytest

from twoturn import article, cells, numbers, page
from twoturn.errors import UserError

from .test_article import LANGUAGES, data_of, demo_cells, loaded

EXAMPLE = Path(__file__).parents[1] / "docs" / "example"
TITLES = ("h1", "h2", "h3")
CONTENT = {"p", "ul", "ol", "div", "figure"}

ONE_ENGINE = """
servers: {mlx-vlm: {install: workflow/envs/mlx-vlm.lock}}
checkpoints: {demo: {path: checkpoints/demo/target}}
series:
  short_prompt:
    workload: {kind: chat, prompts: 3, prompt_tokens: 56, max_tokens: 64, seed: 7}
    reference: plain
    arms: {plain: {checkpoint: demo, server: mlx-vlm}}
"""
# Arms of the demo's cells, read as a sweep of block sizes.
SWEEP = """
servers: {mlx-vlm: {install: workflow/envs/mlx-vlm.lock}}
checkpoints: {demo: {path: checkpoints/demo/target}, demo-mtp: {path: checkpoints/demo/mtp}}
series:
  two_turns:
    workload: {kind: conversation, prompt_tokens: 1500, turns: 2, turn_tokens: 48, max_tokens: 64}
    reference: plain
    null_arm: true
    arms:
      plain: {checkpoint: demo, server: mlx-vlm}
      mtp: &mtp
        {checkpoint: demo, server: mlx-vlm, speculation: mtp, block_size: 3, draft: demo-mtp}
      dflash: {<<: *mtp, block_size: 5}
      cache_off: {<<: *mtp, block_size: 8}
"""


def svg(link: str) -> bytes:
    return (EXAMPLE / link).read_bytes() if (EXAMPLE / link).is_file() else b"<svg/>"


def a_failed_series(table: pd.DataFrame) -> pd.DataFrame:
    """Its server did not start: no value, no text."""
    failed = table["series"] == "short_prompt"
    kept = table.columns[:14].union(["turn", "prompt_id", "kind", "started_at", "session_id"])
    table = table.astype({name: object for name in table.columns.difference(kept)})
    table.loc[failed, table.columns.difference([*kept, "fingerprint"])] = None
    table.loc[failed, ["status", "reason"]] = ["start_failed", "exit code 1: <no> *such* | model"]
    return table.convert_dtypes(dtype_backend="numpy_nullable")


def told(name: str) -> dict[str, str]:
    """Both articles, as Markdown, of a campaign that went as its name says."""
    if name == "the example":
        files = {one: EXAMPLE / f"article_{one}.md" for one in LANGUAGES}
        return {one: file.read_text(encoding="utf-8") for one, file in files.items()}
    text = {"a single engine": ONE_ENGINE, "a sweep": SWEEP}.get(name)
    campaign = loaded(text) if text else loaded()
    table = demo_cells(campaign)
    if name == "nothing measured":
        table = cells.JOINED.empty_table().to_pandas()
    elif name == "a failed series":
        table = a_failed_series(table)
    data = data_of(campaign, table, turns="figures/turns.svg", slots="figures/slots.svg")
    return {one: article.render(one, data) for one in LANGUAGES}


CAMPAIGNS = ("the example", "a failed series", "a single engine", "nothing measured", "a sweep")


@pytest.fixture(scope="module", params=CAMPAIGNS)
def articles(request: Any) -> dict[str, str]:
    return told(request.param)


def parsed(text: str) -> Element:
    """The page as a tree. Raises where it is no valid HTML."""
    parser = html5lib.HTMLParser(namespaceHTMLElements=False, strict=True)
    tree: Element = parser.parse(text)
    return tree


def visible(element: Element) -> str:
    """What a reader sees as text, names and recorded texts (code) left out."""
    parts = [element.text or ""] if element.tag != "code" else [" "]
    for child in element:
        parts += [visible(child), child.tail or ""]
    return "".join(parts)


def test_the_pages_are_sound(articles: dict[str, str]) -> None:
    seen = {}
    for language, text in articles.items():
        tree = parsed(page.render(text, language, svg))
        assert tree.attrib["lang"] == language
        sound(tree)
        body = tree.find("body/main")
        assert body is not None
        seen[language] = numbers.parse(visible(body), language)
        assert seen[language] == numbers.parse(prose(text), language)
    assert seen["en"] == seen["pl"]


def prose(text: str) -> str:
    return re.sub(r"<!--.*?-->|(?<!\\)`[^`]*`|!\[[^\]]*\]\([^)]*\)", " ", text)


def sound(tree: Element, name: str = "") -> None:
    """`name`: a name from outside that looks like markup and stands in the text."""
    assert (tree.findtext("head/title") or "").strip()
    assert [element.tag for element in tree.iter("h1")] == ["h1"]
    ids = Counter(element.attrib["id"] for element in tree.iter() if "id" in element.attrib)
    assert set(ids.values()) == {1}
    for element in tree.iter():
        assert element.tag not in ("script", "iframe", "object", "embed", "form", "link")
        assert not any(name.startswith("on") for name in element.attrib)
        if (target := element.attrib.get("href")) is not None:
            assert target.startswith("#"), target
            assert target[1:] in ids, target
        if (source := element.attrib.get("src")) is not None:
            assert element.tag == "img"
            assert source.startswith("data:image/svg+xml;base64,")
            assert element.attrib["alt"].strip()
    main = tree.find("body/main")
    assert main is not None
    for heading, following in zip(main, [*main[1:], None], strict=True):
        if heading.tag not in TITLES:
            assert heading.tag in CONTENT
            continue
        assert "".join(heading.itertext()).strip()
        deeper = following is not None and following.tag in TITLES and following.tag > heading.tag
        assert deeper or (following is not None and following.tag in CONTENT), heading.attrib["id"]
    for table in tree.iter("table"):
        rows = [[visible(cell) for cell in row] for row in table.iter("tr")]
        assert len(rows) > 1, "an empty table"
        assert len({len(row) for row in rows}) == 1
        cells_of = [cell for row in table.iter("tr") for cell in row]
        assert all("".join(cell.itertext()).strip() for cell in cells_of), "an empty cell"
    for paragraph in [*tree.iter("p"), *tree.iter("li")]:
        assert "".join(paragraph.itertext()).strip()
    text = re.sub("[“„][^”]*”", "", visible(main))  # quoted words stand as they are
    text = text.replace(name, "") if name else text
    assert not re.search(r"\b(None|nan|NaN|inf|NaT|NA|Undefined)\b|%\(|[{}`]", text)
    assert not re.search(r"\*\*|\]\(|^#|\| *---|&\w+;", text, re.MULTILINE), "raw Markdown"


def test_the_contents_lead_to_every_section() -> None:
    tree = parsed(page.render("# A\n\nx\n\n## B `c`\n\nx\n\n## B c\n\nx\n", "en", svg))
    links = [(a.attrib["href"], a.text) for a in tree.iter("a")]
    assert links == [("#b-c", "B c"), ("#b-c-", "B c")]
    assert [element.attrib["id"] for element in tree.iter("h2")] == ["b-c", "b-c-"]


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", '"><img src=x onerror=y>', "a & b", "[x](javascript:y)"]
)
def test_names_from_outside_stay_text(name: str) -> None:
    named = loaded(chip=name, os=name)
    data = data_of(named, cells.JOINED.empty_table().to_pandas())
    text = article.render("en", data)
    tree = parsed(page.render(text, "en", svg))
    sound(tree, name)
    assert name in "".join(tree.itertext())
    comment = f"<!-- campaign: {name} -->\n\n# {name.replace('<', '&lt;')}\n\nx\n"
    tree = parsed(page.render(comment, "en", svg))
    meta = [element.attrib for element in tree.iter("meta")]
    assert {"name": "description", "content": f"campaign: {name}"} in meta


def test_raw_html_in_an_article_stays_text() -> None:
    tree = parsed(page.render("# A\n\n<script>x</script>\n\n<b onclick=x>b</b>\n", "en", svg))
    assert not list(tree.iter("script"))
    assert "<script>x</script>" in "".join(tree.itertext())


def test_words_of_one_letter_end_no_line_in_polish() -> None:
    text = "# A\n\nPomiar w `x`, z *y* i o z; `w x`\n"
    polish, english = (page.render(text, language, svg) for language in ("pl", "en"))
    assert "w\u00a0<code>x</code>, z\u00a0<em>y</em> i\u00a0o\u00a0z; <code>w x</code>" in polish
    assert "\u00a0" not in english


def test_a_picture_that_is_not_there_is_told() -> None:
    with pytest.raises(UserError, match=r"gone\.svg: there is no such picture"):
        page.render("# A\n\n![x](gone.svg)\n", "en", lambda link: b"")


def test_it_asks_no_one_for_anything() -> None:
    text = page.render("# A\n\nx\n", "pl", svg)
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in text
    style = text.partition("<style>")[2].partition("</style>")[0]
    assert "prefers-color-scheme: dark" in style
    assert "@media print" in style
    assert not re.search(r"url\(|@import|https?:", style)
