"""Make the HTML page of an article that was written in Markdown."""

import argparse
import sys
from pathlib import Path

from twoturn import files, page
from twoturn.errors import UserError, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--language", required=True)
    parser.add_argument("article", type=Path)
    parser.add_argument("output", type=Path)
    wanted = parser.parse_args()
    folder: Path = wanted.article.parent.resolve()

    def picture(link: str) -> bytes:
        file = (folder / link).resolve()
        if not file.is_relative_to(folder) or not file.is_file():
            raise UserError("there is no such picture beside the article", file=link)
        return file.read_bytes()

    text = page.render(wanted.article.read_text(encoding="utf-8"), wanted.language, picture)
    files.write_text(wanted.output, text)


if __name__ == "__main__":
    sys.exit(run(main))
