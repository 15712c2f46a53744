"""Register and reconstruct together, with an error bar, no training needed.

1. `motion`: shifts, gains, spectrum and model mismatch by marginal likelihood, image integrated
   out; frames and pixels that disagree are found on the way (`judge`, `outliers`), and then
   higher peaks of the likelihood (`peaks`), frames to blame or lost (`lost`), and spectra that
   were held down (`rise`).
2. `joint`: the same in space, together with the image (`normal`), where motion bends (`bend`) or
   pixels are masked; how sure that is: `joint_certainty`, `draws`.
3. `image`: the image of least energy for all that, by preconditioned conjugate gradients.
4. `variance`: what noise, prior and motion leave unknown of each pixel.

`begin` says what to begin with, `pieces` who is fitted how. `pattern`: what frames tell of their
detector.
"""

from .belief import Belief, Evidence
from .solve import Located, Solution, locate, locate_translations, measure, solve

__all__ = [
    "Belief",
    "Evidence",
    "Located",
    "Solution",
    "locate",
    "locate_translations",
    "measure",
    "solve",
]
