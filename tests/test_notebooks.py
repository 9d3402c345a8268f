"""Notebooks: what is kept byte by byte, where findings are, and that the converted cells give torch's numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch

from jaxmigrate.cli import main
from jaxmigrate.magics import restore, shield
from jaxmigrate.notebook import NotebookError, read_notebook, write_notebook


def code(cell_id: str, *lines: str, outputs: bool = False, count: int | None = 1) -> dict[str, Any]:
    printed = [{"output_type": "stream", "name": "stdout", "text": ["3.0\n"]}] if outputs else []
    source = [f"{line}\n" for line in lines[:-1]] + list(lines[-1:])
    return {"cell_type": "code", "id": cell_id, "metadata": {"tags": [cell_id]}, "execution_count": count,
            "outputs": printed, "source": source}  # fmt: skip


CELLS = [
    {"cell_type": "markdown", "id": "m1", "metadata": {}, "source": ["# torch.nn demo\n", "import torch"]},
    code("c1", "!pip list | head -1", "%matplotlib inline", "import torch", "from torch import nn"),
    code("c2", "x = torch.linspace(0, 1, 3)", "y = nn.functional.softplus(x)", "y.sum()?", "y", outputs=True),
    code(
        "c3",
        "%%time",
        "total = 0",
        "for i in range(2):",
        "    %timeit total",
        "    total = total + y.sum()",
        outputs=True,
    ),
    code("c4", "%%bash", "pip install torch", "echo done"),
    code("c5", "files = !ls", "note = 'unchanged'  # %timeit is no magic here", outputs=True),
    code("c6", "z = x.unsqueeze(0)", "w = (z", "% 2)", "result = (total, w.tolist())"),
]
NOTEBOOK = {
    "nbformat": 4,
    "nbformat_minor": 5,
    "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    "cells": CELLS,
}


def written(folder: Path, data: object = NOTEBOOK, indent: int | None = 1, name: str = "n.ipynb") -> Path:
    path = folder / name
    path.write_text(json.dumps(data, indent=indent, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def converted(folder: Path, *options: str) -> dict[str, Any]:
    assert main(["convert", str(folder / "n.ipynb"), "-o", str(folder / "out.ipynb"), *options]) == 0
    return json.loads((folder / "out.ipynb").read_bytes())  # type: ignore[no-any-return]


def test_a_notebook_comes_out_as_a_valid_one_with_all_else_as_it_was(tmp_path: Path) -> None:
    written(tmp_path)
    after = converted(tmp_path)
    nbformat.validate(after)
    assert [c["id"] for c in after["cells"]] == [c["id"] for c in CELLS]
    assert after["metadata"] == NOTEBOOK["metadata"]
    for old, new in zip(CELLS, after["cells"], strict=True):
        assert new["metadata"] == old["metadata"]
        if old["id"] in ("m1", "c4", "c5"):
            assert new == old
    sources = {c["id"]: "".join(c["source"]) for c in after["cells"]}
    assert sources["c1"].startswith("!pip list | head -1\n%matplotlib inline\nimport jax")
    assert sources["c2"].endswith("y.sum()?\ny")
    assert sources["c3"].startswith("%%time\ntotal = 0\n")
    assert "    %timeit total\n" in sources["c3"]
    assert "w = (z\n% 2)" in sources["c6"]
    assert "torch" not in sources["c1"] + sources["c2"] + sources["c3"] + sources["c6"]


def test_only_the_lines_that_change_differ(tmp_path: Path) -> None:
    """The layout, the order of keys, spellings such as \\u003c and the last line end stay."""
    text = (
        json.dumps({**NOTEBOOK, "extra": "<é>"}, indent=2).replace("<", "\\u003c").replace('"id": "c5"', '"id":  "c5"')
    )
    (tmp_path / "n.ipynb").write_text(text, encoding="utf-8")
    converted(tmp_path)
    after = (tmp_path / "out.ipynb").read_text(encoding="utf-8")
    kept = set(after.splitlines()) & set(text.splitlines())
    assert len([line for line in text.splitlines() if line not in kept]) <= 16
    assert '"extra": "\\u003c\\u00e9>"' in after
    assert '"id":  "c5"' in after
    assert not after.endswith("\n")


@pytest.mark.parametrize(
    ("policy", "kept"), [("clear-changed", {"c5"}), ("clear", set()), ("keep", {"c2", "c3", "c5"})]
)
def test_outputs_of_changed_cells_go(tmp_path: Path, policy: str, kept: set[str]) -> None:
    written(tmp_path)
    (tmp_path / "pyproject.toml").write_text(f'[tool.jaxmigrate]\noutputs = "{policy}"\n', encoding="utf-8")
    cells = [c for c in converted(tmp_path)["cells"] if c["cell_type"] == "code"]
    assert {c["id"] for c in cells if c["outputs"]} == kept
    assert {c["id"] for c in cells if c["outputs"] and c["execution_count"] is None} == set()


def test_the_cells_give_the_numbers_of_torch(tmp_path: Path) -> None:
    written(tmp_path)

    def run(cells: list[dict[str, Any]]) -> Any:
        names: dict[str, Any] = {}
        for cell in cells:
            lines = "".join(cell["source"]).split("\n")
            if cell["cell_type"] == "code" and lines[0] != "%%bash":
                plain = [line for line in lines if not line.strip().startswith(("!", "%t", "%m", "%%"))]
                exec("\n".join(line for line in plain if not line.endswith("?") and "!ls" not in line), names)
        return names["result"]

    (total, w), (expected, v) = run(converted(tmp_path)["cells"]), run(CELLS)
    assert torch.allclose(torch.tensor(float(total)), expected)
    assert torch.allclose(torch.tensor(w), torch.tensor(v))


def test_findings_name_cell_and_line(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    cells = [*CELLS, code("c7", "%timeit torch.relu(x)", "x = 1", "y = torch.no_such(z)")]
    written(tmp_path, {**NOTEBOOK, "cells": cells})
    assert main(["check", "n.ipynb"]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert [line.split(" ")[:3] for line in lines] == [
        ["n.ipynb:cell", "5:2:1:", "JM222"],
        ["n.ipynb:cell", "8:1:1:", "JM222"],
        ["n.ipynb:cell", "8:3:5:", "JM302"],
    ]


def test_the_shown_diff_is_a_patch(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    import subprocess

    monkeypatch.chdir(tmp_path)
    written(tmp_path)
    subprocess.run(["git", "init", "-q"], check=True)
    assert main(["convert", "n.ipynb"]) == 0
    patch = capfd.readouterr().out
    assert "torch.linspace -> jnp.linspace" in patch
    subprocess.run(["git", "apply", "-"], input=patch.encode(), check=True)
    changed = (tmp_path / "n.ipynb").read_bytes()
    written(tmp_path)
    converted(tmp_path)
    assert (tmp_path / "out.ipynb").read_bytes() == changed


def test_folders_with_notebooks(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "src"
    folder.mkdir()
    written(folder)
    (folder / "n.py").write_text("import torch\nx = torch.zeros(3)\n", encoding="utf-8")
    assert main(["convert", "src", "-o", "out"]) == 0
    assert {p.name for p in (tmp_path / "out").iterdir()} >= {"n.py", "n.ipynb"}
    assert main(["convert", "out", "--check"]) == 0, "a second run changes nothing"


def test_a_cell_that_does_not_parse_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, {**NOTEBOOK, "cells": [*CELLS, code("bad", "ok = 1", "x = (")]})
    assert main(["convert", str(path)]) == 3
    assert "n.ipynb:cell 8:2:5: JM901" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a notebook: "),
        ("[1]", "not a notebook: its JSON has no nbformat"),
        ('{"nbformat": 3, "worksheets": []}', "a notebook of format 3; only format 4 is read"),
        (
            '{"nbformat": 4, "cells": [], "metadata": {"language_info": {"name": "R"}}}',
            "a notebook in r, not in Python",
        ),
    ],
)
def test_what_is_no_notebook(tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str, message: str) -> None:
    (tmp_path / "n.ipynb").write_text(text, encoding="utf-8")
    assert main(["convert", str(tmp_path / "n.ipynb")]) == 2
    assert f"n.ipynb: {message}" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("source", "hidden"),
    [
        ("x = 1\n%time f()", 1),
        ("if x:\n    !ls {x}\ny = 2", 1),
        ("a = %sql select 1", 1),
        ("obj.attr??", 1),
        ("?obj", 1),
        ("s = '''\n!not a magic\n'''\n%pwd", 1),
        ("x = (5\n% 3)", 0),
        ("x = [\n  1,\n  # ] \n  '['\n]\n!ls", 1),
        ("x = 'a\\\n%b'\n%pwd", 1),
    ],
)
def test_magics_are_hidden_and_come_back(source: str, hidden: int) -> None:
    shielded = shield(source)
    assert shielded is not None
    assert len(shielded.raw) == hidden
    compile(shielded.text, "cell", "exec")
    assert shielded.text.count("\n") == source.count("\n")
    assert restore(shielded.text, shielded) == source


def test_code_that_moves_between_cells_is_refused() -> None:
    notebook = read_notebook(json.dumps(NOTEBOOK))
    assert write_notebook(notebook, notebook.module()) == notebook.text
    first, second, *rest = notebook.module().split("# %% jaxmigrate cell ")[1:]
    with pytest.raises(NotebookError, match="move"):
        write_notebook(notebook, "".join(f"# %% jaxmigrate cell {part}" for part in (second, first, *rest)))
