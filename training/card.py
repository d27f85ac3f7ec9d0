"""Bring the tables of the model card up to date: what the trainings told, and every file's hash.

python -m training.card checkpoints/demo
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path

NO_MODEL = ("README.md", "training.json")


def trainings(folder: Path) -> str:
    """A row per training."""
    told = json.loads((folder / "training.json").read_text())
    rows = ["| model | parameters | steps | seconds | loss at the end |", "|---|---|---|---|---|"]
    rows += [
        f"| `{name}` | {one['parameters']:,} | {one['steps']} | {one['seconds']} | {one['loss']} |"
        for name, one in told.items()
    ]
    return "\n".join(rows)


def accept_lengths(folder: Path) -> str:
    """A row per draft and prompt length, a column per block: held-out answers, cold prompts."""
    told = json.loads((folder / "training.json").read_text())
    rows = ["| draft | prompt tokens | accept length |", "|---|---|---|"]
    for name, one in told.items():
        lines: dict[int, list[str]] = {}
        for key, value in one.get("accept_length", {}).items():
            prompt, _, block = key.partition(", ")
            lines.setdefault(int(prompt.split()[0]), []).append(f"{block}: {value:.2f}")
        rows += [
            f"| `{name}` | {prompt} | {', '.join(found)} |"
            for prompt, found in sorted(lines.items())
        ]
    return "\n".join(rows)


def files(folder: Path) -> str:
    """A row per file."""
    rows = ["| file | bytes | sha256 |", "|---|---|---|"]
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if path.name not in NO_MODEL:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            shown = path.relative_to(folder).as_posix()
            rows.append(f"| `{shown}` | {path.stat().st_size:,} | `{digest}` |")
    return "\n".join(rows)


def updated(card: str, name: str, table: str) -> str:
    """The card with the table between `<!-- name -->` and `<!-- end -->` replaced."""
    pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
    return re.sub(pattern, lambda found: f"{found[1]}{table}\n{found[2]}", card, flags=re.DOTALL)


def main() -> None:
    folder = Path(sys.argv[1])
    file = folder / "README.md"
    card = file.read_text(encoding="utf-8")
    for name, table in (
        ("trainings", trainings(folder)),
        ("accept lengths", accept_lengths(folder)),
        ("files", files(folder)),
    ):
        card = updated(card, name, table)
    file.write_text(card, encoding="utf-8")


if __name__ == "__main__":
    main()
