"""Attention over concatenated windows: no window is padded to another's length.

All other layers of the model treat each piece separately, so they take the pieces of all windows.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

PACKED = "kp_batch_packed"  # the name by which transformers selects it

Tensor = torch.Tensor


class Lengths(NamedTuple):
    """The lengths of windows in pieces."""

    each: Sequence[int]
    ends: Tensor  # int64, shape (windows,): their cumulative sum, on the model's device


def packed_attention(  # noqa: PLR0913 (transformers calls it)
    module: object,  # noqa: ARG001 (likewise)
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: None,  # noqa: ARG001 (likewise)
    *,
    scaling: float,
    lengths: Lengths,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend within each window.

    Formula: `softmax(scaling * q k^T) v`, for each window and head separately. Query, key and value
    have the shape (1, heads, pieces, dimensions); the windows' lengths sum to all pieces.

    Returns:
        Shape (1, pieces, heads, dimensions), and no weights.
    """
    in_bf16 = query.dtype == torch.bfloat16
    attend = _on_gpu if in_bf16 and query.is_cuda else _by_length
    return attend(query[0], key[0], value[0], lengths, scaling)[None], None


def _on_gpu(query: Tensor, key: Tensor, value: Tensor, lengths: Lengths, scaling: float) -> Tensor:
    """Attend to all windows at once: the kernel takes any lengths, in half precision."""
    ends = torch.nn.functional.pad(lengths.ends, (1, 0)).to(torch.int32)
    q, k, v = (tensor.transpose(0, 1).contiguous() for tensor in (query, key, value))
    longest = max(lengths.each)
    attended = varlen_attn(q, k, v, ends, ends, longest, longest, scale=scaling)
    assert isinstance(attended, Tensor)  # a tuple only if requested  # noqa: S101
    return attended


def _by_length(
    query: Tensor, key: Tensor, value: Tensor, lengths: Lengths, scaling: float
) -> Tensor:
    """Attend to consecutive windows of equal length at once."""
    attend = _in_products if fused_is_slow(query) else scaled_dot_product_attention
    attended: list[Tensor] = []
    first = 0
    for length, equal in groupby(lengths.each):
        count = len(list(equal))
        pieces = slice(first, first + count * length)
        q, k, v = (
            tensor[:, pieces].unflatten(1, (count, length)).transpose(0, 1)
            for tensor in (query, key, value)
        )
        attended.append(attend(q, k, v, scale=scaling).transpose(1, 2).flatten(0, 1))
        first = pieces.stop
    return torch.cat(attended)


def fused_is_slow(query: Tensor) -> bool:
    """Whether torch's fused attention multiplies bf16 no faster than float32.

    That is the case on processors without AMX. On one with AVX512-BF16 it took 4.3 ms for a window
    and layer, and plain products 2.9 ms.
    """
    in_bf16_on_cpu = query.dtype == torch.bfloat16 and query.device.type == "cpu"
    return in_bf16_on_cpu and not torch.cpu.get_capabilities().get("amx_bf16")


def _in_products(query: Tensor, key: Tensor, value: Tensor, *, scale: float) -> Tensor:
    """Attend by two products, one window at a time: its weights stay in the processor's cache."""
    attended = torch.empty_like(query)
    zero = query.new_zeros(())
    for q, k, v, out in zip(query, key, value, attended, strict=True):
        weights = torch.baddbmm(zero, q, k.transpose(1, 2), beta=0, alpha=scale).softmax(-1)
        torch.bmm(weights, v, out=out)
    return attended


AttentionInterface.register(PACKED, packed_attention)
