"""Trainers of chat models read messages: `datasets` loads them, and TRL renders them."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from kp_batch.exports.export import export
from kp_batch.exports.export_options import ExportOptions
from kp_batch.pipeline.rescore import rescore_archive
from tests.support.make.archives import step, trace, write_jsonl
from tests.support.make.runs import config

pytestmark = pytest.mark.slow

TEMPLATES = ("qwen3_training", "glm4moe")  # in TRL's package
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]


def talk(name: str, *given: dict[str, Any]) -> dict[str, Any]:
    """A trace with parallel calls that each have a result of their own."""
    ids = [f"{name}{number}" for number in range(len(given))]
    calls = [
        step("tool_call", None, "look", input=json.dumps(one), call_id=id_)
        for id_, one in zip(ids, given, strict=True)
    ]
    results = [step("observation", f"seen by {id_}", call_id=id_) for id_ in ids]
    thoughts = [step("thought", "hm hm\nI look", reasoning_chars=5), step("thought", "It is so.")]
    row = trace(id=name, steps=[thoughts[0], *calls, *results, thoughts[1]])
    row["task"] |= {"system": "Be good.", "tools": json.dumps(TOOLS) if len(given) > 1 else None}
    return row


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with messages.jsonl and messages.parquet."""
    folder = tmp_path_factory.mktemp("training")
    plain = trace(id="plain", steps=[step("thought", "Yes.")])
    rows = [plain, talk("a", {"path": "a.py"}), talk("b", {"n": 1}, {"path": [None, {"é": 1.5}]})]
    write_jsonl(folder / "archive" / "a.jsonl", rows)
    run_config = config(folder, folder / "archive")
    rescore_archive(run_config)
    for ending in (".jsonl", ".parquet"):
        path = folder / f"messages{ending}"
        options = ExportOptions(format="messages", min_score=0)
        export(run_config.warehouse, options, path, ending=ending)
    return folder


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))


def loaded(folder: Path, builder: str, ending: str, cache: Path) -> list[dict[str, Any]]:
    datasets = pytest.importorskip("datasets", reason="make install installs it")
    file = str(folder / f"messages.{ending}")
    return [*datasets.load_dataset(builder, data_files=file, split="train", cache_dir=str(cache))]


def test_datasets_loads_what_was_written(exported: Path, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in (exported / "messages.jsonl").read_bytes().splitlines()]
    assert len(lines) == 3
    assert loaded(exported, "parquet", "parquet", tmp_path) == lines
    for row, line in zip(loaded(exported, "json", "jsonl", tmp_path), lines, strict=True):
        assert row["messages"] == line["messages"]
        assert row["score"] == pytest.approx(line["score"], abs=1e-9)


@pytest.mark.parametrize("name", TEMPLATES)
def test_trl_renders_every_call_and_its_result(exported: Path, tmp_path: Path, name: str) -> None:
    trl = pytest.importorskip("trl", reason="make install installs it")
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0}, unk_token="?"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="?")
    file = Path(trl.__file__).parent / "chat_templates" / f"{name}.jinja"
    tokenizer.chat_template = file.read_text("utf-8")
    for row in loaded(exported, "parquet", "parquet", tmp_path):
        example = {"messages": copy.deepcopy(row["messages"])}
        text = trl.apply_chat_template(example, tokenizer, tools=row["tools"])["text"]
        for message in row["messages"]:
            assert message["content"] in text
            assert message.get("reasoning_content", "") in text
            for call in message.get("tool_calls", ()):
                assert text.index(call["function"]["name"]) < text.index("seen by")
                assert all(key in text for key in call["function"]["arguments"])
