"""The one error that a user can cause, told in one line: what, where, and the cure."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path


class UserError(Exception):
    """A fault that the user can cure. `str()` is one line: `file: key: what; cure`."""

    def __init__(
        self,
        what: str,
        *,
        file: str | Path | None = None,
        key: str | None = None,
        cure: str | None = None,
    ) -> None:
        where = "".join(f"{part}: " for part in (file, key) if part is not None)
        line = f"{where}{what}" + (f"; {cure}" if cure else "")
        super().__init__(" ".join(line.split()))
        self.what, self.file, self.key, self.cure = what, file, key, cure

    def at(self, file: str | Path | None = None, key: str | None = None) -> UserError:
        """The same fault, told by whoever knows where: what is given goes before what is known."""
        return UserError(
            self.what, file=file or self.file, key=key or self.key or None, cure=self.cure
        )


def run(work: Callable[[], None]) -> int:
    """Exit code of a program: a UserError is one line on stderr and 1."""
    try:
        work()
    except UserError as error:
        print(f"twoturn: {error}", file=sys.stderr)
        return 1
    return 0
