"""What is excluded from an archive: against plain loops, and in what a run makes of it."""

import json
import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_batch.archive.excluding import Excluded, Exclusion, parse_exclusion
from kp_batch.archive.sources import discover
from kp_batch.config import RescoreConfig
from kp_batch.errors import ArchiveError, LimitError
from kp_batch.operations.preview import plan
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.storage.store import store_at
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.runs import config
from tests.support.read.queries import ask

# --- against plain loops ---

NAMES = st.sampled_from(["a", "b", "ab", "x.jsonl", "a.tmp.jsonl", "[a]", "é", "A", "*"])
GLOB_PARTS = st.one_of(
    NAMES, st.sampled_from(["**", "*", "?", "*.jsonl", "*.tmp.*", "[!a]", "[ab]"])
)


def is_match(names: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether parts of a glob match parts of a path, by fnmatch."""
    if not parts:
        return not names
    if parts[0] == "**":
        least = len(parts) == 1  # at the end it stands for what is in a folder
        return any(is_match(names[taken:], parts[1:]) for taken in range(least, len(names) + 1))
    return bool(names) and fnmatchcase(names[0], parts[0]) and is_match(names[1:], parts[1:])


def is_covered(names: Sequence[str], parts: Sequence[str]) -> bool:
    return any(is_match(names[:end], parts) for end in range(1, len(names) + 1))


@given(
    st.lists(NAMES, min_size=1, max_size=4),
    st.lists(st.lists(GLOB_PARTS, min_size=1, max_size=4), max_size=3),
    st.sampled_from(["/archive", "s3://bucket/archive", "s3://bucket"]),
    st.sampled_from([[], ["in full"]]),
)
def test_what_is_excluded_is_what_plain_loops_say(
    names: list[str], globs: list[list[str]], root: str, start: list[str]
) -> None:
    texts = tuple("/".join([*(root for _ in start), *parts]) for parts in globs)
    exclusion = Exclusion(texts, (root,))
    # Of a glob that ends with **, the folder is excluded by itself, too.
    ends = [parts[:-1] if len(parts) > 1 and parts[-1] == "**" else parts for parts in globs]
    expected = any(is_covered(names, parts) for parts in ends)
    assert exclusion.covers("/".join([root, *names])) == expected


@pytest.mark.parametrize(
    ("archive", "glob", "path", "covered"),
    [
        ("/a", "x.jsonl", "/a/x.jsonl", 1),
        ("/a", "x.jsonl", "/a/b/x.jsonl", 0),  # as a whole, unlike in .gitignore
        ("/a", "a/x.jsonl", "/a/x.jsonl", 0),
        ("/a", "./b//x.jsonl", "/a/b/x.jsonl", 1),
        ("/a", "b/", "/a/b/x.jsonl", 1),
        ("/a", "b", "/a/bb/x.jsonl", 0),
        ("/a", "**/tmp/**", "/a/tmp/x.jsonl", 1),
        ("/tmp/a", "**/tmp/**", "/tmp/a/x.jsonl", 0),  # no folder above the archive counts
        ("/a/*/x*.jsonl", "*/x1.jsonl", "/a/b/x1.jsonl", 1),  # from the glob's fixed part on
        ("/a/x.jsonl", "x.jsonl", "/a/x.jsonl", 1),  # of a file that is named, its name
        ("/a/x.jsonl", "/a/x.jsonl", "/a/x.jsonl", 1),
        ("/a", "/a/*.jsonl", "/a/x.jsonl", 1),
        ("/a", "file:///a/x.jsonl", "/a/x.jsonl", 1),
        ("/a", "/x.jsonl", "/a/x.jsonl", 0),
        ("s3://b/a", "s3://b/a/*.jsonl", "s3://b/a/x.jsonl", 1),
        ("s3://b/a/", "c/*.jsonl", "s3://b/a/c/x.jsonl", 1),
        ("s3://b/a", "a/*.jsonl", "s3://b/a/x.jsonl", 0),
        ("/a", "B/*", "/a/b/x.jsonl", 0),
    ],
)
def test_a_glob_is_of_a_whole_path_below_what_the_archive_names(
    archive: str, glob: str, path: str, covered: int
) -> None:
    assert Exclusion((parse_exclusion(glob),), (archive,)).covers(path) == covered
    assert Exclusion((parse_exclusion(glob), "zzz"), ("/other", archive)).covers(path) == covered


def test_globs_that_leave_nothing_out_are_known() -> None:
    globs = ("b", "b/x.jsonl", "x.jsonl", "/a/y*", "c/*", "/b/x.jsonl")
    excluded = Excluded(Exclusion(globs, ("/a",)))
    taken = [excluded.takes(path) for path in ("/a/b", "/a/b/x.jsonl", "/a/y.jsonl", "/a/c")]
    assert taken == [True, True, True, False]
    assert excluded.paths == {"/a/b", "/a/b/x.jsonl", "/a/y.jsonl"}
    assert excluded.unused == ["x.jsonl", "c/*", "/b/x.jsonl"]


@pytest.mark.parametrize(
    "glob", ["", "/", ".", "./", "../x", "a/../b", "a**", "**.jsonl", "a/**b/c", "a\udcff"]
)
def test_what_is_no_glob_of_files_is_refused(glob: str) -> None:
    with pytest.raises(ValueError, match=r"such as broken|\*\* must be alone|not UTF-8"):
        parse_exclusion(glob)


# --- in folders ---


def discovered(folder: Path, *globs: str, archive: str = "") -> list[str]:
    names = (str(folder / archive),)
    files = discover(names, is_excluded=Exclusion(globs, names).covers)
    return [file.path.removeprefix(f"{folder}/") for file in files]


def test_an_excluded_folder_is_not_looked_into(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b/c.jsonl", "b/d/e.jsonl", "w/kp.lock"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("")
    (tmp_path / "b" / "lost.jsonl").symlink_to(tmp_path / "nothing")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / os.fsdecode(b"x\xff.jsonl")).write_text("")
    everything = ["a.jsonl", "b/c.jsonl", "b/d/e.jsonl", "b/lost.jsonl", "odd/x\\xff.jsonl"]
    assert discovered(tmp_path) == everything
    for glob in ("b", "b/", "b/**", f"{tmp_path}/b"):
        assert discovered(tmp_path, glob, "odd/x?.jsonl", "odd/x*") == ["a.jsonl"]
    (tmp_path / "b").chmod(0)
    try:
        assert discovered(tmp_path, "b", "odd") == ["a.jsonl"]  # where it could not be, either
    finally:
        (tmp_path / "b").chmod(0o700)
    with pytest.raises(ArchiveError, match="all files of the archive are excluded"):
        discovered(tmp_path, "**")


# --- in runs ---


def exceeds(settings: RescoreConfig) -> str:
    with pytest.raises(LimitError) as caught:
        rescore_archive(settings)
    return caught.value.code


@pytest.mark.slow
def test_the_traces_of_an_excluded_file_stay_until_it_is_pruned_and_it_counts_for_no_limit(
    tmp_path: Path,
) -> None:
    archive, warehouse = tmp_path / "archive", tmp_path / "warehouse"
    for name in ("a", "b"):
        write_jsonl(archive / f"{name}.jsonl", [trace(id=f"{name}-{n}") for n in range(20)])
    strict: dict[str, Any] = dict.fromkeys(("max_gone", "max_unreadable", "max_removed"), 0)

    def run(**settings: Any) -> tuple[int, int]:
        usual = {"warehouse": warehouse, "embedder": "none", **strict}
        counts = rescore_archive(config(tmp_path, archive, **(usual | settings))).counts
        return counts.gone, counts.excluded

    def files() -> list[tuple[Any, ...]]:
        query = "SELECT parse_filename(source_file), status FROM files ORDER BY ALL"
        return ask(warehouse, query).rows()

    assert run() == (0, 0)
    both = [("a.jsonl", "read"), ("b.jsonl", "read")]
    assert files() == both
    (archive / "b.jsonl").write_text('{"id": ')  # broken, and known to be
    excluded = config(tmp_path, archive, embedder="none", exclude=("b.jsonl",))
    told = plan(excluded).files
    assert (told.excluded, told.gone, told.changed, told.unreadable) == (
        *((str(archive / "b.jsonl"),), (), (), ()),
    )
    assert run(exclude=("b.jsonl",)) == (0, 1)
    assert files() == [("a.jsonl", "read"), ("b.jsonl", "excluded")]
    [inputs] = ask(warehouse, "SELECT inputs FROM runs WHERE run_id = latest()").to_series()
    assert [each["status"] for each in json.loads(inputs)] == ["excluded"]
    told = str(plan(excluded))
    assert told == "nothing to do (files: 1 excluded, 1 of them with traces that stay)"
    assert ask(warehouse, "SELECT count(*) FROM scores").item() == 40
    (archive / "b.jsonl").unlink()
    assert run(exclude=("b.jsonl", "no/such.jsonl")) == (0, 1)
    assert exceeds(config(tmp_path, archive, embedder="none", **strict)) == "max_gone"  # at last
    write_jsonl(archive / "b.jsonl", [trace(id=f"b-{n}") for n in range(20)])
    assert run() == (0, 0)
    assert files() == both
    assert run(exclude=("b.jsonl",), prune=True) == (0, 0)
    assert files() == both[:1]
    assert ask(warehouse, "SELECT count(*) FROM scores").item() == 20


@pytest.mark.slow
def test_a_file_that_was_never_read_and_is_excluded_leaves_nothing_to_do(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    write_jsonl(archive / "a.jsonl", [trace(id="a")])
    rescore_archive(config(tmp_path, archive, embedder="none"))
    write_jsonl(archive / "broken" / "x.jsonl", [trace(id="x")])
    settings = config(tmp_path, archive, embedder="none", exclude=("broken/*",), max_unreadable=0)
    assert plan(settings).pending == []
    assert plan(settings).files.excluded == (str(archive / "broken" / "x.jsonl"),)
    assert rescore_archive(settings).run_id is None


@pytest.mark.process
def test_objects_of_a_bucket_are_excluded_by_url_and_by_key(bucket: str) -> None:
    store = store_at(bucket)
    for name in ("box/a.jsonl", "box/b/c.jsonl", "box/b/d.tmp.jsonl", "box/lake/_delta_log/0.json"):
        store.write(name, b"x")
    name = f"{bucket}/box"

    def found(*globs: str) -> list[str]:
        files = discover([name], is_excluded=Exclusion(globs, (name,)).covers)
        return [file.path.removeprefix(f"{name}/") for file in files]

    assert found() == ["a.jsonl", "b/c.jsonl", "b/d.tmp.jsonl", "lake"]
    assert found("**/*.tmp.jsonl", "lake") == ["a.jsonl", "b/c.jsonl"]
    assert found("b", f"{name}/l*") == ["a.jsonl"]
    assert found(f"{bucket}/box/**/c.jsonl", "box/a.jsonl") == ["a.jsonl", "b/d.tmp.jsonl", "lake"]
