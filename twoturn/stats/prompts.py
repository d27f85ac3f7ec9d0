"""For prompts like these, and not only on these: one value per prompt, prompts as the sample.

Measuring the same prompts again says more about these prompts and nothing about others, because
the speed-up differs from prompt to prompt. So the rounds of a prompt are averaged to one log ratio,
and the interval comes from how much prompts differ:

    mean of the p values ± t(p − 1)·s/√p.

(H. H. Clark, The language-as-fixed-effect fallacy, J. Verbal Learning and Verbal Behavior 12, 1973:
the analysis by items.) Assumes that the prompts are a sample of those that are spoken about, which
no number here can show.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

import numpy as np
from scipy import stats

from .base import CONFIDENCE, Estimate, Refusal
from .ols import NO_NOISE

LARGEST = 700.0
"""Of a log ratio; beyond it the ratio is no finite number."""

MIN_PROMPTS = 6
"""Fewer say next to nothing about others: t(4) at 99 % is 4.6, and one odd prompt decides."""


def estimate(
    ratios: Iterable[tuple[str, float]], *, confidence: float = CONFIDENCE
) -> Estimate | Refusal:
    """Log ratio over prompts, from pairs of a prompt's key and a log ratio arm ÷ reference.

    Several pairs of one prompt (its rounds) count once, with their mean. `noise_log` is the
    standard deviation between prompts. Reasons: `bad_value` (a ratio that is no positive finite
    number), `too_few_prompts` (fewer than six), `no_noise`.
    """
    found: defaultdict[str, list[float]] = defaultdict(list)
    for prompt, log_ratio in ratios:
        found[prompt].append(log_ratio)
    if not all(abs(one) < LARGEST for logs in found.values() for one in logs):
        return Refusal("bad_value")
    if len(found) < MIN_PROMPTS:
        return Refusal("too_few_prompts")
    values = np.array([np.mean(found[prompt]) for prompt in sorted(found)])
    noise = float(np.std(values, ddof=1))
    if noise < NO_NOISE:
        return Refusal("no_noise")
    mean, df, error = float(values.mean()), len(values) - 1, noise / math.sqrt(len(values))
    half = float(stats.t.ppf((1 + confidence) / 2, df)) * error
    return Estimate(
        mean,
        mean - half,
        mean + half,
        confidence,
        p_value=float(2 * stats.t.sf(abs(mean) / error, df)),
        df=df,
        noise_log=noise,
    )
