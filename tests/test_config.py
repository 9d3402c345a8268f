"""Settings from pyproject.toml."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jaxmigrate.cli import main
from jaxmigrate.config import ConfigError, Settings, load_settings
from jaxmigrate.files import InputError, find_inputs


def project(folder: Path, text: str) -> Path:
    path = folder / "pyproject.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_defaults_without_a_table(tmp_path: Path) -> None:
    project(tmp_path, '[project]\nname = "x"\n')
    assert load_settings(tmp_path) == Settings()


def test_every_key(tmp_path: Path) -> None:
    path = project(
        tmp_path,
        '[tool.jaxmigrate]\ntodo = true\nexclude = ["old/*"]\nrules = ["my.toml"]\nfail-on = "warning"\n'
        '[[tool.jaxmigrate.verify]]\nexample = "Net(8)(f32[4, 8])"\n',
    )
    assert load_settings(tmp_path) == Settings(
        todo=True,
        exclude=("old/*",),
        rules=(tmp_path / "my.toml",),
        fail_on="warning",
        verify=({"example": "Net(8)(f32[4, 8])"},),
        origin=path,
    )


def test_the_nearest_file_counts(tmp_path: Path) -> None:
    project(tmp_path, "[tool.jaxmigrate]\ntodo = true\n")
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    source = inner / "m.py"
    source.touch()
    assert load_settings(source).todo
    near = project(tmp_path / "a", "[tool.jaxmigrate]\ntodo = false\n")
    assert load_settings(source).origin == near
    assert not load_settings(source).todo


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.jaxmigrate]\nexclud = []\n", "has no key 'exclud'; did you mean 'exclude'?"),
        ("[tool.jaxmigrate]\nzzz = 1\n", "has no key 'zzz'; known keys: todo, control-flow, "),
        ("[tool.jaxmigrate]\ntodo = 1\n", "todo must be true or false, not 1"),
        ('[tool.jaxmigrate]\nexclude = "a"\n', "exclude must be a list of patterns, not 'a'"),
        ("[tool.jaxmigrate]\nrules = [1]\n", "rules must be a list of paths, not [1]"),
        (
            '[tool.jaxmigrate]\nfail-on = "sometimes"\n',
            "fail-on must be one of note, warning, error, never, not 'sometimes'",
        ),
        ('[tool.jaxmigrate]\nverify = "x"\n', "verify must be an array of tables"),
        ("[tool]\njaxmigrate = 3\n", "[tool.jaxmigrate] must be a table"),
        ("[tool.jaxmigrate\n", "at line 1"),
    ],
)
def test_a_wrong_setting_is_one_line_with_the_file(tmp_path: Path, text: str, message: str) -> None:
    path = project(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_settings(tmp_path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_settings_extend_others(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(
        '[tool.jaxmigrate]\nexclude = ["old"]\nrules = ["a.toml"]\nfail-on = "note"\naccept = ["JM121"]\n',
        encoding="utf-8",
    )
    inner = tmp_path / "in"
    inner.mkdir()
    path = project(
        inner, '[tool.jaxmigrate]\nextend = "../base.toml"\nexclude = ["new"]\nfail-on = "error"\nrules = ["b.toml"]\n'
    )
    found = load_settings(inner)
    assert found.exclude == ("old", "new")
    assert [p.resolve() for p in found.rules] == [tmp_path / "a.toml", inner / "b.toml"]
    assert found.fail_on == "error"
    assert found.accept == ("JM121",)
    assert dict(found.sources)["exclude"] == (tmp_path / "base.toml", path)
    assert dict(found.sources)["fail-on"] == (path,)


def test_a_table_further_up_counts_when_the_nearest_file_has_none(tmp_path: Path) -> None:
    project(tmp_path, "[tool.jaxmigrate]\ntodo = false\n")
    inner = tmp_path / "in"
    inner.mkdir()
    project(inner, '[project]\nname = "x"\n')
    assert load_settings(inner).origin == tmp_path / "pyproject.toml"


def test_settings_of_some_files(tmp_path: Path) -> None:
    project(
        tmp_path,
        '[tool.jaxmigrate]\naccept = ["JM121"]\n[tool.jaxmigrate.per-file."old/*"]\naccept = ["JM302"]\ntodo = false\n'
        '[tool.jaxmigrate.per-file."*_test.py"]\ntodo = true\n',
    )
    found = load_settings(tmp_path)
    paths = {name: str(tmp_path / name) for name in ("m.py", "old/m.py", "old/m_test.py", "old/deep/m.py")}
    assert {n: sorted(found.accepts(p)) for n, p in paths.items()} == {
        "m.py": ["JM121"], "old/m.py": ["JM121", "JM302"], "old/m_test.py": ["JM121", "JM302"],
        "old/deep/m.py": ["JM121", "JM302"],
    }  # fmt: skip
    assert [found.todo_for(p) for p in paths.values()] == [True, False, True, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('extend = "gone.toml"', "gone.toml, which is no file"),
        ("extend = 1", "extend must be a path, not 1"),
        ('extend = "pyproject.toml"', "extend leads back to"),
        ('extend = "bare.toml"', "bare.toml, which has no [tool.jaxmigrate]"),
        ("fail-under = 101", "fail-under must be a percentage, 0 to 100, not 101"),
        ('accept = ["JM12"]', "JM12 is no code, did you mean JM1"),
        ("jobs = -1", "jobs must be a number of processes"),
        ('outputs = "drop"', "outputs must be one of clear-changed, clear, keep, not 'drop'"),
        ('per-file = {"*.py" = {todos = true}}', "a file has no key 'todos'; did you mean 'todo'?"),
        ("per-file = 1", "per-file must be a table of patterns"),
        ("baseline = 1", "baseline must be a path, not 1"),
        ("gitignore = 1", "gitignore must be true or false"),
    ],
)
def test_more_wrong_settings(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bare.toml").touch()
    path = project(tmp_path, f"[tool.jaxmigrate]\n{text}\n")
    with pytest.raises(ConfigError) as caught:
        load_settings(tmp_path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


def test_the_command_shows_what_is_in_force_and_why(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = project(tmp_path, '[tool.jaxmigrate]\nexclude = ["legacy"]\n[tool.jaxmigrate.per-file."a*"]\ntodo = false\n')
    (tmp_path / ".gitignore").write_text("made/\n", encoding="utf-8")
    for name in ("a.py", "legacy/b.py", "made/c.py", "build/d.py", "e.txt", "nnx_layers.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x = 1\n", encoding="utf-8")
    assert main(["config"]) == 0
    rows = dict(line.split("  ", 1) for line in capfd.readouterr().out.splitlines())
    assert rows["exclude"].split() == ['["legacy"]', str(path)]
    assert rows["fail-on"].split() == ['"error"', "default"]
    for name, why in {
        "a.py": "converted",
        "legacy/b.py": "passed over in a folder: exclude has 'legacy'",
        "made/c.py": "passed over in a folder: git ignores it",
        "build/d.py": "passed over in a folder: the folder build is always passed over",
        "e.txt": "passed over in a folder: it is neither .py nor .ipynb",
        "nnx_layers.py": "passed over in a folder: it is the layer file",
    }.items():
        assert main(["config", name]) == 0
        assert f"{name}: {why}" in capfd.readouterr().out
    assert main(["config", "a.py", "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert data["settings"]["exclude"] == {"value": ["legacy"], "from": [str(path)]}
    assert data["file"] == {"path": "a.py", "passed_over": None, "todo": False, "accept": []}
    assert main(["config", "gone.py"]) == 2
    assert [i.path.name for i in find_inputs([tmp_path], ["legacy"])] == ["a.py", "nnx_layers.py"]


def test_what_git_ignores_is_passed_over(tmp_path: Path) -> None:
    files = ["a.py", "out/b.py", "sub/c.py", "sub/keep.py", "sub/deep/d.py", "n.ipynb"]
    for name in files:
        (tmp_path / "repo" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "repo" / name).write_text("x = 1\n", encoding="utf-8")
    (tmp_path / "repo/.git").mkdir()
    (tmp_path / "repo/.gitignore").write_text("/out\n*.ipynb\nsub/*.py\n", encoding="utf-8")
    (tmp_path / "repo/sub/.gitignore").write_text("!keep.py\n", encoding="utf-8")

    def names(*paths: str, **options: bool) -> list[str]:
        found = find_inputs([tmp_path / p for p in paths], **options)  # type: ignore[arg-type]
        return [i.path.relative_to(tmp_path / "repo").as_posix() for i in found]

    assert names("repo") == ["a.py", "sub/keep.py", "sub/deep/d.py"]
    assert names("repo/sub") == ["sub/keep.py", "sub/deep/d.py"]
    assert names("repo/out") == ["out/b.py"], "what was named is not ignored"
    assert names("repo/sub/c.py") == ["sub/c.py"]
    assert len(names("repo", gitignore=False)) == len(files)
    (tmp_path / "repo/.gitignore").write_text("*\n", encoding="utf-8")
    (tmp_path / "repo/sub/.gitignore").unlink()
    with pytest.raises(InputError, match=r"no Python file in this folder that is not excluded or ignored by git"):
        find_inputs([tmp_path / "repo"])
