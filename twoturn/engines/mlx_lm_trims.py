"""Which of a model's caches cannot be taken back, as mlx-lm itself says.

A draft's wrong tokens have to be taken back from the target's cache, so `speculative_generate_step`
refuses a cache of which `is_trimmable` is false, and its server then answers nothing. Which models
that concerns (those with recurrent layers: Qwen3.5, Mamba and two dozen others) changes with the
version, so it is asked and not listed. Run with the Python of the server's own environment, which
has mlx-lm and no twoturn: `python mlx_lm_trims.py FOLDER` prints the class names as JSON. Weights
are not read.
"""

import json
import sys
from pathlib import Path

from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model


def untrimmable(folder: Path) -> list[str]:
    """Class names, without repetition."""
    model, _ = load_model(folder, lazy=True)
    return sorted(
        {type(one).__name__ for one in make_prompt_cache(model) if not one.is_trimmable()}
    )


if __name__ == "__main__":
    print(json.dumps(untrimmable(Path(sys.argv[1]))))
