"""Encoders turn texts into vectors: the live engine's model, any other, or a lexical stand-in."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from kp_batch.embedding.model_files import MINILM_DIGESTS, file_digests, find_minilm, find_model
from kp_batch.errors import EncoderError
from kp_batch.vectors import Float32s, normalised, norms

if TYPE_CHECKING:
    from pathlib import Path

    from sentence_transformers import SentenceTransformer

# Raised with any change here or in `vectors.normalised` that changes a vector: every encoder_id
# bears it.
ENCODER_VERSION = 1
# The model's position limit. The live engine cuts the finished sequence here, so a longer text
# keeps [CLS] and loses [SEP]; the usual truncation keeps both.
WINDOW = 512
# Word pieces of a batch with its padding: 8 full windows. Larger batches were slower on a CPU (5.9
# full windows a second at 32, 9.8 at 8).
_BATCH_PIECES = 8 * WINDOW
_WORD = r"\w+"  # scikit-learn's own pattern drops one-letter words


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


def load_encoder(name: str) -> Encoder | None:
    """Find the encoder of that name; None for `none`. A model is loaded with its first text.

    Args:
        name: minilm, hashing, none, or a sentence-transformers folder or id.

    Raises:
        EncoderError: a model's files cannot be found.
    """
    if name == "none":
        return None
    if name == "minilm":
        return MiniLM()
    if name == "hashing":
        return Hashing()
    return AnyModel(name)


class MiniLM:
    """all-MiniLM-L6-v2 as the live engine runs it, with a window of 512 word pieces."""

    dimensions = 384
    chunk_size = 512
    encoder_id = f"minilm-{MINILM_DIGESTS['model.safetensors'][:8]}-{WINDOW}-v{ENCODER_VERSION}"

    def encode(self, texts: Sequence[str]) -> Float32s:
        """Pool over the attention mask by the mean, then normalise; see `Encoder`."""
        import torch

        pieces = self._pieces(texts)
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        with torch.inference_mode():
            for rows in _batches([len(piece) for piece in pieces]):
                features = self._model.tokenizer.pad(
                    {"input_ids": [pieces[row] for row in rows]}, return_tensors="pt"
                ).to(self._model.device)
                output = self._model(dict(features))["sentence_embedding"]
                vectors[rows] = output.float().cpu().numpy()
        return _checked(vectors)

    def _pieces(self, texts: Sequence[str]) -> list[list[int]]:
        """Word piece ids with the special tokens, cut at the window."""
        if not texts:
            return []
        tokens = self._model.tokenizer(list(texts), truncation=False, padding=False)
        return [ids[:WINDOW] for ids in tokens["input_ids"]]

    @cached_property
    def _model(self) -> "SentenceTransformer":
        return _load(find_minilm())


class AnyModel:
    """Any sentence-transformers model as it configures itself; its files name its vectors."""

    chunk_size = 512

    def __init__(self, name: str) -> None:
        self._folder = find_model(name)
        digest = hashlib.sha256(json.dumps(file_digests(self._folder)).encode()).hexdigest()
        self.encoder_id = f"model-{digest[:16]}-v{ENCODER_VERSION}"

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
        return _checked(self._model.encode(list(texts), batch_size=8, show_progress_bar=False))

    @cached_property
    def _model(self) -> "SentenceTransformer":
        return _load(self._folder)


class Hashing:
    """A lexical stand-in without a model: signed hashed counts of words and word pairs."""

    dimensions = 384
    chunk_size = 16_384
    encoder_id = f"hashing-384-v{ENCODER_VERSION}"

    def encode(self, texts: Sequence[str]) -> Float32s:
        """See `Encoder`."""
        if not texts:
            return np.zeros((0, self.dimensions), dtype=np.float32)
        return _checked(self._vectorizer.transform(texts).toarray())

    @cached_property
    def _vectorizer(self) -> Any:
        from sklearn.feature_extraction import text

        return cast("Any", text.HashingVectorizer)(
            n_features=self.dimensions, ngram_range=(1, 2), token_pattern=_WORD, norm=None
        )


def _checked(returned: npt.ArrayLike) -> Float32s:
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


def _batches(lengths: list[int]) -> Iterator[list[int]]:
    """Rows in batches of similar length, each of at most `_BATCH_PIECES` pieces with padding."""
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[row] > _BATCH_PIECES:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _load(folder: "Path") -> "SentenceTransformer":
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging

    logging.set_verbosity_error()  # it warns of every text over the window
    logging.disable_progress_bar()
    return SentenceTransformer(str(folder), local_files_only=True)
