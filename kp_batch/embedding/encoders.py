"""Encoders turn texts into vectors: the live engine's model, any other, or a lexical stand-in."""

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Protocol

import numpy as np

from kp_batch.embedding.checked import ENCODER_VERSION, checked
from kp_batch.embedding.hashing import Hashing
from kp_batch.embedding.minilm import MiniLM
from kp_batch.embedding.model_files import file_digests, find_model
from kp_batch.embedding.precision import Precision, computing, suffix
from kp_batch.errors import EncoderError
from kp_batch.vectors import Float32s

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class Encoder(Protocol):
    """Turns texts into vectors."""

    @property
    def encoder_id(self) -> str:
        """Names exactly the vectors that it makes; known without loading a model."""
        ...

    @property
    def dimensions(self) -> int:
        """The length of each of its vectors."""
        ...

    @property
    def precision(self) -> Precision:
        """In which it computes."""
        ...

    @property
    def chunk_size(self) -> int:
        """How many texts are encoded and then stored together; an interruption loses no more."""
        ...

    def encode(self, texts: Sequence[str]) -> Float32s:
        """Make a unit vector of each text, a zero vector where it has no token.

        Returns:
            float32, shape (texts, dimensions).

        Raises:
            EncoderError: the model cannot be loaded, or it returned NaN or infinity.
        """
        ...


def load_encoder(name: str, precision: Precision = "float32") -> Encoder | None:
    """Find the encoder of that name; None for `none`. A model is loaded with its first text.

    Args:
        name: minilm, hashing, none, or a sentence-transformers folder or id.
        precision: in which a model computes.

    Raises:
        EncoderError: a model's files cannot be found.
    """
    if name == "none":
        return None
    if name == "minilm":
        return MiniLM(precision)
    if name == "hashing":
        return Hashing()
    return AnyModel(name, precision)


class AnyModel:
    """Any sentence-transformers model as it configures itself; its files name its vectors."""

    chunk_size = 512

    def __init__(self, name: str, precision: Precision = "float32") -> None:
        self.precision: Precision = precision
        self._folder = find_model(name)
        digest = hashlib.sha256(json.dumps(file_digests(self._folder)).encode()).hexdigest()
        self.encoder_id = f"model-{digest[:16]}{suffix(precision)}-v{ENCODER_VERSION}"
        self._turn = Lock()

    @property
    def dimensions(self) -> int:
        """Read from the model, which is loaded for it."""
        dimensions = self._model.get_embedding_dimension()
        if not dimensions:
            raise EncoderError(f"the model in {self._folder} does not say its dimensions")
        return dimensions

    def encode(self, texts: Sequence[str]) -> Float32s:
        """See `Encoder`."""
        if not texts:
            return np.zeros((0, self.dimensions), dtype=np.float32)
        with self._turn, computing(self.precision, self._model.device):
            return checked(self._model.encode(list(texts), batch_size=8, show_progress_bar=False))

    @cached_property
    def _model(self) -> "SentenceTransformer":
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging

        logging.set_verbosity_error()  # it warns of every text over the window
        logging.disable_progress_bar()
        return SentenceTransformer(str(self._folder), local_files_only=True)
