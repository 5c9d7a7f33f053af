"""The encoder of a worker, its model loaded once."""

from functools import lru_cache
from threading import Lock
from typing import NamedTuple

from kp_batch.embedding.encoders import Encoder, load_encoder
from kp_batch.embedding.precision import Precision
from kp_batch.errors import EncoderError


class EncoderName(NamedTuple):
    """What a worker loads an encoder by."""

    embedder: str
    precision: Precision
    encoder_id: str


def loaded_encoder(name: EncoderName) -> Encoder:
    """The encoder of that name, the same one each time.

    Raises:
        EncoderError: here the model has other files.
    """
    with _LOADING:
        return _load(name)


def unload() -> None:
    """Let go of the model."""
    _load.cache_clear()


_LOADING = Lock()  # threads share an encoder, and its model


@lru_cache(maxsize=1)
def _load(name: EncoderName) -> Encoder:
    encoder = load_encoder(name.embedder, name.precision)
    if encoder is None or encoder.encoder_id != name.encoder_id:
        raise EncoderError(
            f"the files of the model {name.embedder} are others here than where it was named"
        )
    return encoder
