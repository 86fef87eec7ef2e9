"""The scripts and the notebook in examples/python run."""

import subprocess
import sys

import pytest

from conftest import REPOSITORY

FOLDER = REPOSITORY / "examples/python"
REQUIRED_PACKAGES = {"audit_model.py": "transformers", "train_mixer.py": "torch", "verify_construction.py": "torch"}


def test_every_example_is_tested():
    assert {path.name for path in FOLDER.iterdir()} == {*REQUIRED_PACKAGES, "rung.ipynb"}


@pytest.mark.parametrize("name", REQUIRED_PACKAGES)
def test_scripts_run(name, tmp_path):
    pytest.importorskip(REQUIRED_PACKAGES[name])
    result = subprocess.run([sys.executable, FOLDER / name], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    assert result.stdout and not list(tmp_path.iterdir())


def test_the_notebook_runs(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(FOLDER / "rung.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    media_types = [media_type for cell in notebook.cells for output in cell.get("outputs", ()) for media_type in output.get("data", ())]
    assert media_types.count("image/svg+xml") >= 3 and media_types.count("text/html") >= 3
