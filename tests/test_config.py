"""Settings from pyproject.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxmigrate.config import ConfigError, Settings, load_settings


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
