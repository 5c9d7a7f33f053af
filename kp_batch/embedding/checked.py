"""What every encoder returns: vectors that are numbers, normalised."""

import numpy as np
import numpy.typing as npt

from kp_batch.errors import EncoderError
from kp_batch.vectors import Float32s, normalised, norms

# Raised with any change here, in an encoder or in `vectors.normalised` that changes a vector by
# more than the texts beside it do (1e-6): every encoder_id bears it.
ENCODER_VERSION = 1


def checked(returned: npt.ArrayLike) -> Float32s:
    """The vectors that a model returned, normalised.

    Raises:
        EncoderError: a component is NaN or infinite; the message names the row of its text.
    """
    vectors = np.asarray(returned, dtype=np.float64)
    finite = np.isfinite(norms(vectors))
    if not finite.all():
        row = int(finite.argmin())
        raise EncoderError(f"the encoder returned a vector with NaN or infinity (text {row})")
    return normalised(vectors)
