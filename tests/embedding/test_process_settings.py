"""A setting of a library is kept while anybody needs it, in any order, and then restored."""

import threading
import time
from contextlib import ExitStack
from weakref import WeakValueDictionary

import pytest

from kp_batch.embedding import encoders
from kp_batch.embedding.encoders import Hashing, load_encoder
from kp_batch.embedding.process_settings import ProcessSetting


@pytest.mark.parametrize("first_to_end", [0, 1])
def test_a_setting_is_kept_until_its_last_user_has_ended_and_then_restored(
    first_to_end: int,
) -> None:
    setting = ["high"]
    held = ProcessSetting(
        lambda: setting[0], lambda value: setting.__setitem__(0, value), "highest"
    )
    stacks = [ExitStack(), ExitStack()]
    for stack in stacks:
        stack.enter_context(held.kept())
    stacks[first_to_end].close()
    assert setting == ["highest"]
    stacks[1 - first_to_end].close()
    assert setting == ["high"]
    setting[0] = "medium"
    with held.kept():
        assert setting == ["highest"]
    assert setting == ["medium"]


def test_an_encoder_is_shared_as_long_as_somebody_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders, "LOADED", WeakValueDictionary())  # others may have one
    one = load_encoder("hashing")
    assert load_encoder("hashing") is one
    assert load_encoder("minilm") is not one
    mark = object()
    vars(one)["mark"] = mark
    del one
    again = load_encoder("hashing")
    assert isinstance(again, Hashing)
    assert "mark" not in vars(again)


@pytest.mark.model
def test_the_real_model_leaves_the_settings_of_its_libraries() -> None:
    import torch
    from transformers.utils import logging

    logging.set_verbosity_info()
    logging.enable_progress_bar()
    torch.set_float32_matmul_precision("high")
    try:
        encoder = load_encoder("minilm")
        assert encoder
        encoder.encode(["a text"])
        assert logging.get_verbosity() == logging.INFO
        assert logging.is_progress_bar_enabled()
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        logging.set_verbosity_warning()
        torch.set_float32_matmul_precision("highest")


def test_threads_that_load_at_once_have_the_same_encoder() -> None:
    found: list[object] = []

    def load() -> None:
        found.append(load_encoder("hashing"))
        time.sleep(0.01)

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({*map(id, found)}) == 1
