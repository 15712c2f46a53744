"""Register and reconstruct together, with an error bar, no training needed.

1. `motion`: shifts, gains, spectrum and model mismatch by marginal likelihood, image integrated
   out; frames and pixels that disagree are found on the way (`outliers`).
2. `gaussian`: the image of least energy for all that, by preconditioned conjugate gradients.
3. `variance`: what noise, prior and motion leave unknown of each pixel.
"""

from .solve import Solution, solve

__all__ = ["Solution", "solve"]
