"""The interface of encoders, which turn texts into finite, normalised vectors."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from kp_batch.embedding.precision import Precision
from kp_batch.errors import EncoderError
from kp_batch.vectors import Float32s, normalised, norms

# Part of every encoder_id. Raise it with any change of an encoder, or of `vectors.normalised`, that
# changes a vector by more than the other texts of its batch do (1e-6).
ENCODER_VERSION = 1


class Encoder(Protocol):
    """Turns texts into vectors."""

    @property
    def encoder_id(self) -> str:
        """The id of the vectors that it makes; known without loading a model."""
        ...

    @property
    def dimensions(self) -> int:
        """The length of its vectors."""
        ...

    @property
    def precision(self) -> Precision:
        """The precision of its computation."""
        ...

    @property
    def chunk_size(self) -> int:
        """The texts encoded and stored together: an interruption loses at most these."""
        ...

    def encode(self, texts: Sequence[str]) -> Float32s:
        """Make a unit vector of each text; a zero vector if it has no token.

        Returns:
            float32, shape (texts, dimensions).

        Raises:
            EncoderError: the model cannot be loaded, or it returned NaN or infinity.
        """
        ...


def checked(returned: npt.ArrayLike) -> Float32s:
    """Check and normalise the vectors that a model returned.

    Raises:
        EncoderError: a component is NaN or infinite; the message names the row of its text.
    """
    vectors = np.asarray(returned, dtype=np.float64)
    finite = np.isfinite(norms(vectors))
    if not finite.all():
        row = int(finite.argmin())
        raise EncoderError(
            f"the encoder returned a vector with NaN or infinity (text {row}); choose another "
            "precision, or another model"
        )
    return normalised(vectors)
