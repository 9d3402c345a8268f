"""Finding, decoding, placing and writing files."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from jaxmigrate.files import DecodeError, Input, InputError, decode, decode_outcome, find_inputs, read_all, read_bytes
from jaxmigrate.output import (
    OutputError,
    Place,
    Write,
    check_target,
    merged_layers,
    place,
    plan,
    uncommitted,
    write_all,
)
from jaxmigrate.report.findings import Outcome, Run


def tree(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n", encoding="utf-8")


def names(root: Path, found: list[Input]) -> list[str]:
    return [item.path.relative_to(root).as_posix() for item in found]


# Finding


def test_a_folder_is_searched_in_order_without_what_is_not_source(tmp_path: Path) -> None:
    tree(tmp_path, "b.py", "a.py", "pkg/m.py", "pkg/data.txt", "pkg/stub.pyi")
    tree(tmp_path, ".git/x.py", ".venv/x.py", "__pycache__/x.py", "node_modules/x.py", "build/x.py", "pkg/build/x.py")
    tree(tmp_path, "env/pyvenv.cfg", "env/lib/x.py")
    assert names(tmp_path, find_inputs([tmp_path])) == ["a.py", "b.py", "pkg/m.py"]


@pytest.mark.parametrize("pattern", ["old", "old/", "old/*", "*/gone.py", "gone.py"])
def test_excluded_paths_are_passed_over(tmp_path: Path, pattern: str) -> None:
    tree(tmp_path, "keep.py", "old/gone.py")
    assert names(tmp_path, find_inputs([tmp_path], [pattern])) == ["keep.py"]


def test_a_file_that_is_named_is_taken_whatever_its_name(tmp_path: Path) -> None:
    tree(tmp_path, "build/x.py", "script")
    found = find_inputs([tmp_path / "build/x.py", tmp_path / "script"], ["x.py"])
    assert names(tmp_path, found) == ["build/x.py", "script"]


def test_each_file_is_taken_once(tmp_path: Path) -> None:
    tree(tmp_path, "a.py", "b.py")
    found = find_inputs([tmp_path / "a.py", tmp_path, tmp_path / "../" / tmp_path.name / "b.py"])
    assert [item.path.name for item in found] == ["a.py", "b.py"]


def test_the_output_folder_of_an_earlier_run_is_no_input(tmp_path: Path) -> None:
    tree(tmp_path, "a.py", "out/a.py")
    assert names(tmp_path, find_inputs([tmp_path], without=tmp_path / "out")) == ["a.py"]


def test_a_link_to_a_folder_is_not_followed(tmp_path: Path) -> None:
    tree(tmp_path, "a.py")
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    assert names(tmp_path, find_inputs([tmp_path])) == ["a.py"]


def test_roots(tmp_path: Path) -> None:
    tree(tmp_path, "pkg/sub/m.py")
    (inside,) = find_inputs([tmp_path / "pkg"])
    assert (inside.relative, inside.root, inside.named) == (Path("sub/m.py"), tmp_path / "pkg", False)
    (itself,) = find_inputs([tmp_path / "pkg/sub/m.py"])
    assert (itself.relative, itself.root, itself.named) == (Path("m.py"), tmp_path / "pkg/sub", True)


def test_inputs_that_cannot_be_taken(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "empty").mkdir()
    for name, reason in [
        ("gone.py", "no such file or directory"),
        ("pipe.py", "neither a file nor a folder"),
        ("empty", "no Python file in this folder"),
    ]:
        with pytest.raises(InputError) as caught:
            find_inputs([tmp_path / name])
        assert str(caught.value) == f"{tmp_path / name}: {reason}"


def test_a_pipe_in_a_folder_is_no_source(tmp_path: Path) -> None:
    tree(tmp_path, "a.py")
    os.mkfifo(tmp_path / "pipe.py")
    assert names(tmp_path, find_inputs([tmp_path])) == ["a.py"]
    with pytest.raises(InputError, match="not a regular file"):
        read_bytes(tmp_path / "pipe.py")


# Decoding


@pytest.mark.parametrize(
    ("data", "encoding", "bom", "text"),
    [
        (b"x = 1\r\ny = 2\r\n", "utf-8", False, "x = 1\r\ny = 2\r\n"),
        (b"x = 1\ry = 2", "utf-8", False, "x = 1\ry = 2"),
        (b"\xef\xbb\xbfx = '\xc3\xa9'\n", "utf-8", True, "x = 'é'\n"),
        (b"# -*- coding: latin-1 -*-\nx = '\xe9'\n", "iso-8859-1", False, "# -*- coding: latin-1 -*-\nx = 'é'\n"),
        (
            b"#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\nx = '\x80'\n",
            "cp1252",
            False,
            "#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\nx = '€'\n",
        ),
        (b"x = '\x0c'\n\x0cy = 2\n", "utf-8", False, "x = '\x0c'\n\x0cy = 2\n"),
        (b"", "utf-8", False, ""),
    ],
)
def test_bytes_come_back_as_they_were(data: bytes, encoding: str, bom: bool, text: str) -> None:
    source = decode("m.py", data)
    assert (source.encoding, source.bom, source.text) == (encoding, bom, text)
    outcome = Outcome("m.py", "unchanged", text, text, encoding=source.encoding, bom=source.bom)
    assert outcome.encoded() == data


@pytest.mark.parametrize(
    ("data", "position", "message"),
    [
        (b"x = 1\ny = '\xff'\n", (2, 6), "byte 0xff is not utf-8"),
        (b"# \xc3\xa9\n# \xc3\xa9 \xe9\n", (2, 5), "byte 0xe9 is not utf-8"),
        (b"\xef\xbb\xbfx = '\xff'\n", (1, 6), "byte 0xff is not utf-8"),
        (b"# coding: klingon\n", (1, 1), "unknown encoding: klingon"),
        (b"\xef\xbb\xbf# coding: latin-1\n", (1, 1), "encoding problem"),
        (b"# coding: ascii\nx = '\xc3\xa9'\n", (2, 6), "byte 0xc3 is not ascii"),
    ],
)
def test_undecodable_bytes_are_placed(data: bytes, position: tuple[int, int], message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode("m.py", data)
    assert caught.value.position == position
    assert caught.value.message.startswith(message)
    (failure,) = decode_outcome("m.py", data).failed
    assert failure.status == "failed"
    assert [(f.code, f.start) for f in failure.findings] == [("JM901", position)]


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"PK\x03\x04\x00\x00", "a binary file"), ("x = 1\n".encode("utf-16"), "UTF-16 text"), (b"x\0", "a binary file")],
)
def test_a_binary_is_no_source(data: bytes, message: str) -> None:
    with pytest.raises(InputError, match=f"m.bin: {message}"):
        decode("m.bin", data)


def test_a_binary_among_others_does_not_stop_them(tmp_path: Path) -> None:
    tree(tmp_path, "a.py")
    (tmp_path / "b.py").write_bytes(b"\0\1")
    reading = read_all(find_inputs([tmp_path]))
    assert [Path(s.path).name for s in reading.sources] == ["a.py"]
    assert [(Path(o.path).name, o.findings[0].code) for o in reading.failed] == [("b.py", "JM901")]
    with pytest.raises(InputError):
        read_all(find_inputs([tmp_path / "b.py"]))


# Placing


def run_of(*paths: Path, status: str = "changed") -> Run:
    return Run(tuple(Outcome(str(p), status, "x = 1\n", "x = 2\n") for p in paths))  # type: ignore[arg-type]


def test_a_file_goes_to_a_file_or_into_a_folder(tmp_path: Path) -> None:
    tree(tmp_path, "m.py")
    source = tmp_path / "m.py"
    (tmp_path / "there").mkdir()
    cases = {"out.py": "out.py", "new/": "new/m.py", "there": "there/m.py", "a/b/out.py": "a/b/out.py"}
    for output, expected in cases.items():
        where = place(f"{tmp_path}/{output}", [source])
        (write,) = plan(run_of(source), find_inputs([source]), where)
        assert (write.path, write.data) == (tmp_path / expected, b"x = 2\n")


def test_a_folder_keeps_its_shape_and_takes_the_unchanged_along(tmp_path: Path) -> None:
    tree(tmp_path, "src/a.py", "src/pkg/b.py", "src/bad.py")
    items = find_inputs([tmp_path / "src"])
    outcomes = tuple(
        Outcome(str(i.path), status, "x = 1\n", "x = 1\n")
        for i, status in zip(items, ("unchanged", "failed", "skipped"), strict=True)
    )
    writes = plan(Run(outcomes), items, place(str(tmp_path / "out"), [tmp_path / "src"]))
    assert [w.path.relative_to(tmp_path).as_posix() for w in writes] == ["out/a.py", "out/pkg/b.py"]


def test_in_place_only_the_changed_are_written(tmp_path: Path) -> None:
    tree(tmp_path, "a.py")
    items = find_inputs([tmp_path])
    assert plan(run_of(tmp_path / "a.py", status="unchanged"), items, Place(None, False)) == []
    assert [w.path for w in plan(run_of(tmp_path / "a.py"), items, Place(None, False))] == [tmp_path / "a.py"]


def test_outputs_that_collide(tmp_path: Path) -> None:
    tree(tmp_path, "a/m.py", "b/m.py", "file")
    (tmp_path / "folder.py").mkdir()
    one, two = tmp_path / "a/m.py", tmp_path / "b/m.py"

    def attempt(output: str, *inputs: Path) -> str:
        with pytest.raises(OutputError) as caught:
            plan(run_of(one, two), find_inputs(inputs), place(str(tmp_path / output), inputs))
        return str(caught.value).removeprefix(f"{tmp_path}/")

    assert attempt("out", one, two) == "out/m.py: two inputs would be written there"
    assert attempt("file", tmp_path / "a") == "file: a file, but the output of a folder needs a folder"
    assert attempt("a/m.py", one) == "a/m.py: would overwrite an input; use --write to convert in place"
    assert attempt("file/x/out.py", one) == f"file/x/out.py: {tmp_path}/file is a file, not a folder"
    os.mkfifo(tmp_path / "pipe")
    assert attempt("pipe", one) == "pipe: not a regular file"
    with pytest.raises(OutputError, match="a folder, not a file"):
        check_target(tmp_path / "folder.py")


# Writing


def test_a_new_file_takes_the_mode_of_its_source_and_an_old_one_keeps_its_own(tmp_path: Path) -> None:
    tree(tmp_path, "script.py", "old.py")
    (tmp_path / "script.py").chmod(0o755)
    (tmp_path / "old.py").chmod(0o640)
    write_all(
        [
            Write(tmp_path / "deep/new.py", b"1", like=tmp_path / "script.py"),
            Write(tmp_path / "old.py", b"2", like=tmp_path / "script.py"),
            Write(tmp_path / "plain.py", b"3"),
        ]
    )
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.rglob("*.py")}
    mask = os.umask(0)
    os.umask(mask)
    assert modes == {"script.py": 0o755, "new.py": 0o755, "old.py": 0o640, "plain.py": 0o666 & ~mask}
    assert (tmp_path / "old.py").read_bytes() == b"2"


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "m.py"
    target.write_bytes(b"old")
    with pytest.raises(OutputError, match="name too long"):
        write_all([Write(tmp_path / ("x" * 300), b"new")])
    with pytest.raises(TypeError):
        write_all([Write(target, "not bytes")])  # type: ignore[arg-type]
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"m.py": b"old"}


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def test_uncommitted_files_are_found(tmp_path: Path) -> None:
    tree(tmp_path, "clean.py", "dirty.py", "staged.py", "ignored.py", "with blank.py")
    (tmp_path / ".gitignore").write_text("ignored.py\n", encoding="utf-8")
    assert uncommitted([tmp_path / "clean.py"]) == []  # no repository: git could not help anyway
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "clean.py", "dirty.py", "with blank.py", ".gitignore")
    git(tmp_path, "commit", "-qm", "x")
    (tmp_path / "dirty.py").write_text("x = 2\n", encoding="utf-8")
    git(tmp_path, "add", "staged.py")
    found = uncommitted(sorted(tmp_path.glob("*.py")))
    assert [p.name for p in found] == ["dirty.py", "ignored.py", "staged.py"]


# The layer file


@pytest.fixture
def layers(tmp_path: Path) -> Path:
    return tmp_path / "nnx_layers.py"


def test_the_layer_file_is_written_where_there_is_none(layers: Path) -> None:
    from jaxmigrate.layers import emit

    assert merged_layers(layers, emit(["Linear"]), ["Linear"]) == emit(["Linear"]).encode()


def test_the_layer_file_grows_when_it_is_still_the_tools(layers: Path) -> None:
    from jaxmigrate.layers import emit

    layers.write_text(emit(["Linear"]), encoding="utf-8")
    assert merged_layers(layers, emit(["Linear"]), ["Linear"]) is None
    grown = merged_layers(layers, emit(["LayerNorm"]), ["LayerNorm"])
    assert grown == emit(["LayerNorm", "Linear"]).encode()


def test_an_edited_layer_file_is_kept_and_never_overwritten(layers: Path) -> None:
    from jaxmigrate.layers import emit

    mine = emit(["Linear"]) + "\n\nMINE = 1\n"
    layers.write_text(mine, encoding="utf-8")
    assert merged_layers(layers, emit(["Linear"]), ["Linear"]) is None
    with pytest.raises(OutputError, match="lacks LayerNorm and was edited"):
        merged_layers(layers, emit(["LayerNorm"]), ["LayerNorm"])
    assert layers.read_text(encoding="utf-8") == mine


def test_a_file_of_that_name_which_is_no_layer_file(layers: Path) -> None:
    layers.write_text("def (:\n", encoding="utf-8")
    with pytest.raises(OutputError, match="not a layer file"):
        merged_layers(layers, "x = 1\n", ["Linear"])
