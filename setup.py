"""Builds the compiled parts of Moot. Everything else about the package stands in pyproject.toml.

They are left out where there is no C compiler and where MOOT_PURE_PYTHON=1 says so: the package works all the
same, a little slower.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sysconfig
from tempfile import TemporaryDirectory

from setuptools import Extension, setup

COMPILED = (
    "moot.protocol._scan_envelope",
    "moot.net._frame_reader",
    "moot.gateway.hosting._fast_path",
    "moot.store._record_hashes",
)


def has_compiler() -> bool:
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    return shutil.which(command[0]) is not None


def extensions(folder: str) -> list[Extension]:
    if os.environ.get("MOOT_PURE_PYTHON") == "1" or not has_compiler():
        return []
    from Cython.Build import cythonize

    modules: list[Extension] = cythonize(
        [
            Extension(name, [f"src/{name.replace('.', '/')}.pyx"], extra_compile_args=["-O3"])
            for name in COMPILED
        ],
        include_path=["src"],
        build_dir=folder,
    )
    for module in modules:
        # There may be a compiler and no header of Python's. For wheels to be published that is a fault.
        module.optional = os.environ.get("MOOT_COMPILED") != "1"
    return modules


# Not ./build: what an earlier build left there would be packed as well, long after it was removed.
with TemporaryDirectory(prefix="moot-build-") as folder:
    options = {"build": {"build_base": folder}, "build_ext": {"parallel": len(COMPILED)}}
    setup(ext_modules=extensions(folder), options=options)
