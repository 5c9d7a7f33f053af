import os
import re
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from kp_batch.archive.folders import IS_TABLE, SourceFile
from kp_batch.archive.sources import discover, open_file, stat_file
from kp_batch.errors import ArchiveError, KpBatchError
from kp_batch.storage.store import store_at

ODD_NAMES = [
    "two words.parquet",
    "it's.parquet",
    'a "quote".jsonl',
    "100%20.jsonl",
    "{a,b}.pq",
    "über 日本 😀.ndjson",
    "semi;colon#hash&.parquet",
    "star*.parquet",
    "$HOME.parquet",
]


def make(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())


TABLES = {
    "Delta": "_delta_log/00000000000000000000.json",
    "Hudi": ".hoodie/hoodie.properties",
    "Iceberg": "metadata/00002-9c12d441-03fe-4693-9a96-a0705ddf69c1.gz.metadata.json",
}
of_tables = pytest.mark.parametrize("mark", TABLES.values(), ids=TABLES)


def discovered(folder: Path, *archive: Path | str) -> list[str]:
    return [file.path.removeprefix(f"{folder}/") for file in discover(map(str, archive))]


def test_a_file_is_described(tmp_path: Path) -> None:
    make(tmp_path, "a.parquet")
    status = (tmp_path / "a.parquet").stat()
    assert discover([str(tmp_path / "a.parquet")]) == [
        SourceFile(
            f"{tmp_path}/a.parquet",
            len("a.parquet"),
            status.st_mtime_ns,
            str(status.st_ctime_ns),
        )
    ]


def test_a_folder_is_searched_at_every_depth(tmp_path: Path) -> None:
    make(tmp_path, "a.parquet", "x/b.pq", "x/y/c.JSONL", "x/y/z/d.ndjson", "x/e.parquet/part-0.pq")
    make(tmp_path, "README.txt", "x/data.json", "x/f.parquet.tmp", "parquet", "g.jsonl.gz")
    assert discovered(tmp_path, tmp_path) == [
        "a.parquet",
        "x/b.pq",
        "x/e.parquet/part-0.pq",
        "x/y/c.JSONL",
        "x/y/z/d.ndjson",
    ]


def test_what_is_hidden_in_a_folder_is_left_out(tmp_path: Path) -> None:
    make(tmp_path, ".a.parquet", "_a.parquet", ".git/b.jsonl", "x/_temporary/0/c.parquet", "x/d.pq")
    assert discovered(tmp_path, tmp_path) == ["x/d.pq"]


def test_a_hidden_folder_is_searched_when_it_is_named(tmp_path: Path) -> None:
    make(tmp_path, ".hidden/_deep/a.parquet")
    assert discovered(tmp_path, tmp_path / ".hidden/_deep") == [".hidden/_deep/a.parquet"]


def test_files_come_in_the_order_of_their_paths_bytes(tmp_path: Path) -> None:
    # By their parts "a/1.pq" would come before "a-b.pq".
    names = [
        "z.pq",
        "a/1.pq",
        "a-b.pq",
        "Z.pq",
        "é.pq",
        "a.pq",
        "\uffff.pq",
        "😀.pq",
        "10.pq",
        "9.pq",
    ]
    make(tmp_path, *names)
    assert discovered(tmp_path, *(tmp_path / name for name in names)) == [
        *("10.pq", "9.pq", "Z.pq", "a-b.pq", "a.pq", "a/1.pq", "z.pq", "é.pq", "\uffff.pq", "😀.pq")
    ]


def test_a_glob_finds_files_and_folders(tmp_path: Path) -> None:
    make(tmp_path, "a1.parquet", "a2.jsonl", "a3.txt", "b1.parquet", "a/deep/c.pq", "d/a9.parquet")
    assert discovered(tmp_path, tmp_path / "a*") == ["a/deep/c.pq", "a1.parquet", "a2.jsonl"]
    assert discovered(tmp_path, tmp_path / "[ab]1.parquet") == ["a1.parquet", "b1.parquet"]
    assert discovered(tmp_path, tmp_path / "**/*.parquet") == [
        "a1.parquet",
        "b1.parquet",
        "d/a9.parquet",
    ]
    assert discovered(tmp_path, tmp_path / "?1.parquet", tmp_path / "**/a9*") == [
        *("a1.parquet", "b1.parquet", "d/a9.parquet")
    ]


def test_a_file_named_twice_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "x/a.parquet", "x/b.jsonl")
    monkeypatch.chdir(tmp_path)
    archive = ["x/a.parquet", "./x/a.parquet", "x", "x/*", tmp_path / "x/a.parquet"]
    assert discovered(tmp_path, *archive) == ["x/a.parquet", "x/b.jsonl"]


def test_relative_and_home_paths_become_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "a.parquet", "b.jsonl")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert [file.path for file in discover(["a.parquet"])] == [f"{tmp_path}/a.parquet"]
    assert [file.path for file in discover(["*.jsonl"])] == [f"{tmp_path}/b.jsonl"]
    assert [file.path for file in discover(["~/b.jsonl"])] == [f"{tmp_path}/b.jsonl"]


@pytest.mark.parametrize("name", [*ODD_NAMES, "[1].parquet", "a[b.jsonl"])
def test_odd_names_are_found_and_opened(tmp_path: Path, name: str) -> None:
    make(tmp_path / "[x] 'y'", name, "other.parquet")
    path = tmp_path / "[x] 'y'" / name
    assert discovered(path.parent, path) == [name]
    assert name in discovered(path.parent, path.parent)
    with open_file(str(path)) as file:
        assert file.read() == name.encode()


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_found_and_opened_as_urls(tmp_path: Path, name: str) -> None:
    make(tmp_path, name)
    for archive in (f"file://{tmp_path}/{name}", f"file://{tmp_path}"):
        assert discover([archive]) == discover([str(tmp_path)])  # a file has one name


@of_tables
def test_a_table_is_refused_and_never_read_file_by_file(tmp_path: Path, mark: str) -> None:
    make(tmp_path, "a.jsonl", f"lake/t/{mark}", "lake/t/data/part=1/b.parquet")
    table, fault = f"{tmp_path}/lake/t", IS_TABLE
    assert [(file.path, file.fault) for file in discover([str(tmp_path)])] == [
        (f"{tmp_path}/a.jsonl", ""),
        (table, fault),
    ]
    for below in ("", "/**/*.parquet", "/data", "/data/part=1/*", "/data/part=1/b.parquet"):
        with pytest.raises(ArchiveError, match=re.escape(f"cannot list '{table}': {fault}")):
            discover([f"{table}{below}"])


@pytest.mark.telling
@pytest.mark.process
@of_tables
def test_a_table_in_a_bucket_likewise(bucket: str, mark: str) -> None:
    for name in ("a.jsonl", f"lake/t/{mark}", "lake/t/data/part=1/b.parquet"):
        store_at(bucket).write(name, b"x")
    table, fault = f"{bucket}/lake/t", IS_TABLE
    assert [(file.path, file.fault) for file in discover([bucket])] == [
        (f"{bucket}/a.jsonl", ""),
        (table, fault),
    ]
    for below in ("", "/**/*.parquet", "/data", "/data/part=1/*", "/data/part=1/b.parquet"):
        with pytest.raises(ArchiveError, match=re.escape(f"cannot list '{table}': {fault}")):
            discover([f"{table}{below}"])


@pytest.mark.parametrize(("mark", "is_table"), [("_delta_log", True), ("metadata", False)])
def test_a_closed_folder_is_a_mark_of_a_table_by_its_name_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str, *, is_table: bool
) -> None:
    make(tmp_path, "t/a.jsonl", f"t/{mark}/0.metadata.json")
    scandir = os.scandir

    def denied(path: str) -> Any:  # a superuser may look into any
        if path.endswith(mark):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", denied)
    faults = {file.path: file.fault for file in discover([str(tmp_path)])}
    assert (faults.get(f"{tmp_path}/t") == IS_TABLE) is is_table
    assert (f"{tmp_path}/t/a.jsonl" in faults) is not is_table


def test_a_folder_with_metadata_of_its_own_is_no_table(tmp_path: Path) -> None:
    make(tmp_path, "a/b.jsonl", "a/metadata/c.jsonl", "a/metadata/about.json", "a/metadata.json")
    make(tmp_path, "d/e.jsonl", "d/metadata")
    assert discovered(tmp_path, tmp_path) == ["a/b.jsonl", "a/metadata/c.jsonl", "d/e.jsonl"]


@pytest.mark.telling
@pytest.mark.process
def test_buckets_are_read_by_url(bucket: str) -> None:
    store = store_at(bucket)
    names = [
        "box/a b.parquet",
        "box/x/c.jsonl",
        "box/_tmp/d.jsonl",
        "box/e.txt",
        "box/é%20#[1]?.pq",
        "box/_import/kp.lock",  # which is hidden, as its folder is
    ]
    for name in names:
        store.write(name, name.encode())
    a, c, odd = (f"{bucket}/{names[index]}" for index in (0, 1, 4))
    for archive, expected in {
        f"{bucket}": [a, c, odd],
        f"{bucket}/box/": [a, c, odd],
        f"{bucket}/b*": [a, c, odd],
        f"{bucket}/**/*.jsonl": [c],
        f"{bucket}/box/x*": [c],
        a: [a],
        f"{bucket}/box/e.txt": [f"{bucket}/box/e.txt"],
    }.items():
        files = discover([archive], left_out=pytest.fail)
        assert [file.path for file in files] == expected, archive
    for source in discover([bucket]):
        assert source == stat_file(source.path)
        assert source.version
        with open_file(source.path) as file:
            assert file.read() == source.path.removeprefix(f"{bucket}/").encode()
    for nothing in ("none", "box/x.parquet", "*.parquet"):
        with pytest.raises(ArchiveError, match=r"no Parquet or JSONL file at .*\.pq, \.jsonl, "):
            discover([f"{bucket}/{nothing}"])


def test_a_url_with_a_secret_is_refused_and_not_repeated() -> None:
    urls = ("s3://key:secret@box/a", "https://host/a.parquet?sig=secret", "s3://key:secret@[box]/a")
    for url in urls:
        with pytest.raises(KpBatchError, match="credentials or a query") as caught:
            discover([url])
        assert "secret" not in str(caught.value)
    with pytest.raises(KpBatchError, match="names no bucket"):
        discover(["s3:///a"])


@pytest.mark.process
def test_a_single_file_is_read_from_a_web_server(tmp_path: Path) -> None:
    make(tmp_path, "a.jsonl")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/a.jsonl"
        [source] = discover([url])
        assert (source.path, source.size) == (url, 7)
        with open_file(url) as file:
            assert file.read() == b"a.jsonl"
        server.shutdown()


def test_a_url_may_be_a_folder_or_a_glob(tmp_path: Path) -> None:
    make(tmp_path, "a.parquet", "x/b.jsonl", "x/c.txt", "d.txt")
    url = f"file://{tmp_path}"
    assert discovered(tmp_path, url) == ["a.parquet", "x/b.jsonl"]
    assert discovered(tmp_path, f"{url}/*") == ["a.parquet", "x/b.jsonl"]
    assert discovered(tmp_path, f"{url}/**/*.jsonl") == ["x/b.jsonl"]
    assert discovered(tmp_path, f"{url}/d.txt") == ["d.txt"]


@pytest.mark.parametrize(
    "name",
    [
        *("nothing.parquet", "nothing/", "*.parquet", "**/*.jsonl", "empty", "only_text", "*.txt"),
        *("file://{}/nothing.parquet", "file://{}/empty", "file://{}/*.parquet"),
    ],
)
def test_what_names_nothing_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    make(tmp_path, "only_text/a.txt", "good/a.parquet", "b.txt")
    archive = name.format(tmp_path) if "://" in name else f"{tmp_path}/{name}"
    with pytest.raises(ArchiveError) as caught:
        discover([str(tmp_path / "good"), archive])
    assert archive in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(
            ("a.parquet", "parquet"),
            ("a.PQ", "parquet"),
            ("a.jsonl", "jsonl"),
            ("a.b.NDJSON", "jsonl"),
        ),
        *(
            ("a", "parquet"),
            ("a.bin", "parquet"),
            ("s3://b/a.jsonl", "jsonl"),
            ("jsonl", "parquet"),
        ),
    ],
)
def test_the_ending_decides_the_format(name: str, kind: str) -> None:
    assert SourceFile(name, 1, 0).format.name == kind


def test_a_file_of_any_ending_is_taken_when_it_is_named(tmp_path: Path) -> None:
    make(tmp_path, "a.bin", "noending")
    assert discovered(tmp_path, tmp_path / "a.bin", tmp_path / "noending") == ["a.bin", "noending"]


def test_a_file_that_is_gone_cannot_be_opened(tmp_path: Path) -> None:
    for path in (f"{tmp_path}/gone", f"file://{tmp_path}/gone"):
        with pytest.raises(FileNotFoundError):
            open_file(path)
