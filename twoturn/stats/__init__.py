"""Two arms, one ratio: estimates under drift and the gate that turns them into a verdict.

One file holds one assumption:

- `pair_fit`: noise is alike in both arms, drift is smooth and common to both (the estimate that is
  published);
- `hodges_lehmann`: per-round log ratios are symmetric about the true one (the cross-check);
- `drift_curve`: the drift alone, from all arms (reported, corrects nothing);
- `verdict`: what may be said, given the two estimates;
- `stacking`: four arms in a square, and whether their two differences multiply.

A bad input is a `Refusal` with a reason code and a doubt is a warning code: both are values, never
exceptions.
"""
