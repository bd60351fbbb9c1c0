"""Builds the compiled parts of Moot. Everything else about the package stands in pyproject.toml."""

from __future__ import annotations

from Cython.Build import cythonize
from setuptools import Extension, setup

COMPILED = ("moot.protocol._plain", "moot.gateway._lane")

modules = cythonize(
    [Extension(name, [f"src/{name.replace('.', '/')}.pyx"], extra_compile_args=["-O3"]) for name in COMPILED],
    include_path=["src"],
    build_dir="build",
)
for module in modules:
    # Without a C compiler the package is installed all the same, and works a little slower.
    module.optional = True

setup(ext_modules=modules)
