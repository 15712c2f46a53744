"""Register and reconstruct together, with an error bar, no training needed.

1. `motion`: shifts, gains, spectrum and model mismatch by marginal likelihood, image integrated
   out; frames and pixels that disagree are found on the way (`outliers`).
2. `bend`: the same in space, together with the image, where motion bends or much is masked.
3. `image`: the image of least energy for all that, by preconditioned conjugate gradients.
4. `variance`: what noise, prior and motion leave unknown of each pixel.
"""

from .solve import Located, Solution, locate, locate_translations, solve

__all__ = ["Located", "Solution", "locate", "locate_translations", "solve"]
