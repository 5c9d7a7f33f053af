"""The encoders: the live engine's model, any other, or a lexical stand-in."""

import hashlib
import json
import re
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

import numpy as np

from kp_batch.embedding.encoder import ENCODER_VERSION, Encoder, checked
from kp_batch.embedding.model_files import file_digests, find_model
from kp_batch.embedding.precision import Precision, computing, suffix, weights_type
from kp_batch.embedding.process_settings import quiet
from kp_batch.errors import EncoderError
from kp_batch.stopping import raise_if_unwanted, waited_for
from kp_batch.vectors import Float32s, Float64s

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_AT_ONCE = 512  # texts whose counts, in float64, fit a core's cache
# Of these texts: words and pairs of words take some forty times their size while they are hashed.
_LETTERS_AT_ONCE = 1 << 20
_WORD = re.compile(r"\w+")
LOADED: WeakValueDictionary[str, "Encoder"] = WeakValueDictionary()  # by encoder_id
_SHARING = Lock()


def load_encoder(name: str, precision: Precision = "float32") -> Encoder | None:
    """Find an encoder by its name: minilm, hashing, or a sentence-transformers folder or id.

    `none` has no encoder. A model is loaded with its first text, and only once: as long as anything
    in the process keeps its encoder, all callers get the same one.

    Raises:
        EncoderError: a model's files cannot be found.
    """
    if name == "none":
        return None
    encoder = _made(name, precision)
    with _SHARING:
        return LOADED.setdefault(encoder.encoder_id, encoder)


def _made(name: str, precision: Precision) -> Encoder:
    if name == "minilm":
        from kp_batch.embedding.minilm import MiniLM

        return MiniLM(precision)
    return Hashing() if name == "hashing" else AnyModel(name, precision)


class AnyModel:
    """Any sentence-transformers model, by its own configuration; its files give the encoder_id."""

    chunk_size = 512

    def __init__(self, name: str, precision: Precision = "float32") -> None:
        self.precision: Precision = precision
        self._folder = find_model(name)
        digest = hashlib.sha256(json.dumps(file_digests(self._folder)).encode()).hexdigest()
        self.encoder_id = f"model-{digest[:16]}{suffix(precision)}-v{ENCODER_VERSION}"
        self._lock = Lock()

    @property
    def dimensions(self) -> int:
        """The length of its vectors; reading it loads the model."""
        dimensions = self._model.get_embedding_dimension()
        if not dimensions:
            raise EncoderError(
                f"the model in {self._folder} does not declare its dimensions; choose another one"
            )
        return dimensions

    def encode(self, texts: Sequence[str]) -> Float32s:
        """See `Encoder`."""
        if not texts:
            return np.zeros((0, self.dimensions), dtype=np.float32)
        with waited_for(self._lock), quiet(), computing(self.precision, self._model.device):
            # These keep a CPU's cache, or a GPU, full.
            size = 8 if self._model.device.type == "cpu" else 128
            return checked(
                self._model.encode(list(texts), batch_size=size, show_progress_bar=False)
            )

    @cached_property
    def _model(self) -> "SentenceTransformer":
        from sentence_transformers import SentenceTransformer

        with quiet():
            model = SentenceTransformer(str(self._folder), local_files_only=True)
        model[0].register_forward_pre_hook(lambda *_: raise_if_unwanted())  # before each batch
        is_bf16 = weights_type(self.precision, model.device).itemsize == 2
        return model.bfloat16() if is_bf16 else model


class Hashing:
    """Signed hashed counts of words and word pairs, as scikit-learn's `HashingVectorizer`.

    A term's 32-bit MurmurHash3 h, a signed number, gives its column, |h| modulo the dimensions, and
    the sign of its count. Unlike scikit-learn's default pattern, it counts words of one letter.
    """

    dimensions = 384
    chunk_size = 16_384
    precision: Precision = "float32"
    encoder_id = f"hashing-384-v{ENCODER_VERSION}"

    def encode(self, texts: Sequence[str]) -> Float32s:
        """See `Encoder`."""
        vectors = np.empty((len(texts), self.dimensions), dtype=np.float32)
        least = _LETTERS_AT_ONCE // _AT_ONCE
        ends = np.cumsum([max(len(text), least) for text in texts], dtype=np.int64)
        firsts = np.flatnonzero(np.diff((ends - 1) // _LETTERS_AT_ONCE, prepend=-1))
        for first, last in pairwise([*firsts.tolist(), len(texts)]):
            raise_if_unwanted()
            vectors[first:last] = checked(self._count_terms(texts[first:last]))
        return vectors

    def _count_terms(self, texts: Sequence[str]) -> Float64s:
        import polars as pl
        import polars_hash as _  # noqa: F401 (it registers `nchash` on every expression)

        terms_of = [_terms(text) for text in texts]
        terms = pl.Series([term for of_text in terms_of for term in of_text], dtype=pl.String)
        hashes = pl.select(cast("Any", pl.lit(terms)).nchash.murmur32()).to_series().to_numpy()
        signed = hashes.view(np.int32).astype(np.int64)
        row = np.repeat(np.arange(len(texts)), [len(of_text) for of_text in terms_of])
        index = row * self.dimensions + np.abs(signed) % self.dimensions
        size = len(texts) * self.dimensions
        counts = np.bincount(index, weights=np.where(signed < 0, -1.0, 1.0), minlength=size)
        return counts.astype(np.float64, copy=False).reshape(len(texts), self.dimensions)


def _terms(text: str) -> list[str]:
    words = _WORD.findall(text.lower())
    return words + [f"{word} {after}" for word, after in pairwise(words)]
