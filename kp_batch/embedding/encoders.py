"""Texts to vectors: the live engine's model, any other one, or a lexical stand-in."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from kp_batch.embedding.model_files import MINILM_DIGESTS, file_digests, find_minilm, find_model
from kp_batch.errors import EncoderError

if TYPE_CHECKING:
    from pathlib import Path

    from sentence_transformers import SentenceTransformer

Float32s = npt.NDArray[np.float32]

# Raised with any change here that changes a vector: every encoder_id bears it.
ENCODER_VERSION = 1
# The model's position limit. The live engine cuts the finished sequence here, so that a longer
# text keeps [CLS] and loses [SEP]; the usual truncation would keep both.
WINDOW = 512
# Padded pieces a batch: 8 full windows. Larger batches were slower on a CPU (5.9 against 9.8
# full windows a second at 32).
_BATCH_PIECES = 8 * WINDOW
_WORD = r"\w+"  # scikit-learn's own pattern drops one-letter words


class Encoder(Protocol):
    """Turns texts into vectors. `encoder_id` names exactly the vectors that it makes."""

    @property
    def encoder_id(self) -> str:
        """Changes with anything that changes a vector; known without loading a model."""
        ...

    @property
    def dimensions(self) -> int:
        """The length of its vectors."""
        ...

    @property
    def chunk_size(self) -> int:
        """Texts that are encoded and then stored together: what an interruption can lose."""
        ...

    def encode(self, texts: Sequence[str]) -> Float32s:
        """Unit vectors (zero for a text without a token), float32 of shape (texts, dimensions)."""
        ...


def load_encoder(name: str) -> Encoder | None:
    """The encoder of that name; None for `none`. A model is only loaded with the first text.

    Args:
        name: minilm, hashing, none, or a sentence-transformers folder or id.

    Raises:
        EncoderError: a model's files are not to be had.
    """
    if name == "none":
        return None
    if name == "minilm":
        return MiniLM()
    if name == "hashing":
        return Hashing()
    return AnyModel(name)


class MiniLM:
    """all-MiniLM-L6-v2 as the live engine runs it: 384 dimensions, a window of 512 word pieces."""

    dimensions = 384
    chunk_size = 512
    encoder_id = f"minilm-{MINILM_DIGESTS['model.safetensors'][:8]}-{WINDOW}-v{ENCODER_VERSION}"

    def encode(self, texts: Sequence[str]) -> Float32s:
        """See `Encoder`. Mean pooling over the attention mask, then L2 normalisation."""
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
        return normalised(vectors)

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
    """Any sentence-transformers model, as it configures itself."""

    chunk_size = 512

    def __init__(self, name: str) -> None:
        """Find its files; they are what names its vectors."""
        self._folder = find_model(name)
        digest = hashlib.sha256(json.dumps(file_digests(self._folder)).encode()).hexdigest()
        self.encoder_id = f"model-{digest[:16]}-v{ENCODER_VERSION}"

    @property
    def dimensions(self) -> int:
        """Read from the model."""
        dimensions = self._model.get_embedding_dimension()
        if not dimensions:
            raise EncoderError(f"the model in {self._folder} does not say its dimensions")
        return dimensions

    def encode(self, texts: Sequence[str]) -> Float32s:
        """See `Encoder`."""
        if not texts:
            return np.zeros((0, self.dimensions), dtype=np.float32)
        return normalised(self._model.encode(list(texts), batch_size=8, show_progress_bar=False))

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
        return normalised(self._vectorizer.transform(texts).toarray())

    @cached_property
    def _vectorizer(self) -> Any:
        from sklearn.feature_extraction import text

        return cast("Any", text.HashingVectorizer)(
            n_features=self.dimensions, ngram_range=(1, 2), token_pattern=_WORD, norm=None
        )


def normalised(vectors: npt.ArrayLike) -> Float32s:
    """Rows divided by their norm in float64, rounded to float32; zero rows stay zero.

    Raises:
        EncoderError: a component is NaN or infinite.
    """
    exact = np.asarray(vectors, dtype=np.float64)
    norms = np.sqrt(np.einsum("ij,ij->i", exact, exact))
    if not np.isfinite(norms).all():
        row = int(np.flatnonzero(~np.isfinite(norms))[0])
        raise EncoderError(f"the encoder returned a vector with NaN or infinity (text {row})")
    return (exact / np.where(norms == 0, 1.0, norms)[:, None]).astype(np.float32)


def _batches(lengths: list[int]) -> Iterator[list[int]]:
    """Rows in batches of like length, each at most `_BATCH_PIECES` pieces once padded."""
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
