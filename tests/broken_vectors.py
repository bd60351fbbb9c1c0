"""Environments of processes in which word vectors are not installed, or broken."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

WEIGHTS = Path("weights", "l2_supercat_256.safetensors")
TOKENIZER = Path("tokenizers", "l2_supercat_tokenizer_config.json")


def copy_vectors(folder: Path) -> Path:
    """WordLlama's files as they are installed, to do harm to; `folder` is a place for PYTHONPATH."""
    spec = find_spec("wordllama")
    assert spec is not None
    assert spec.origin is not None
    home = folder / "wordllama"
    home.mkdir(parents=True)
    (home / "__init__.py").touch()
    for part in (WEIGHTS, TOKENIZER):
        (home / part).parent.mkdir()
        shutil.copyfile(Path(spec.origin).parent / part, home / part)
    return home


def environment_with_broken_vectors(folder: Path) -> dict[str, str]:
    """Weights that somebody has written over."""
    (copy_vectors(folder) / WEIGHTS).write_bytes(b"\xff" * 4_096)
    return _with_path(folder)


def environment_without_vectors(folder: Path) -> dict[str, str]:
    """As after `pip install moot`: nothing called wordllama can be imported."""
    folder.mkdir(parents=True)
    (folder / "sitecustomize.py").write_text("import sys\nsys.modules['wordllama'] = None\n")
    return _with_path(folder)


def _with_path(folder: Path) -> dict[str, str]:
    before = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": str(folder) if not before else f"{folder}{os.pathsep}{before}"}
