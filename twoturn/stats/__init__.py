"""Two arms, one ratio: estimates under drift and the gate that turns them into a verdict.

One file holds one assumption:

- `pair_fit`: noise is alike in both arms, drift is common to both and smooth but for one `step`
  (the estimate that is published);
- `hodges_lehmann`: per-round log ratios are symmetric about the true one (the cross-check);
- `bracketed`: drift is straight between two slots of the reference (a second cross-check);
- `drift_curve`: the drift alone, from all arms (reported, corrects nothing);
- `verdict`: what may be said, given the two estimates;
- `stacking`: four arms in a square, and whether their two differences multiply;
- `best_of`: which of several arms is best, told on rounds that did not choose it;
- `prompts`: prompts are a sample (prompts like these, not only these);
- `planning`: how many rounds an effect needs.

How often this is wrong: docs/statistics.md.

A bad input is a `Refusal` with a reason code and a doubt is a warning code: both are values, never
exceptions.
"""
