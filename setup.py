"""Builds the compiled parts of Moot. Everything else about the package stands in pyproject.toml."""

from __future__ import annotations

from Cython.Build import cythonize
from setuptools import Extension, setup

# Optional: without a C compiler the package is installed all the same, and works a little slower.
COMPILED = ("moot.protocol._plain", "moot.gateway._lane")

setup(
    ext_modules=cythonize(
        [
            Extension(name, [f"src/{name.replace('.', '/')}.pyx"], extra_compile_args=["-O3"], optional=True)
            for name in COMPILED
        ],
        include_path=["src"],
        build_dir="build",
    )
)
