"""Hooks of mkdocs: they add the pages, under their paths in the repository, and convert docstrings to Markdown."""

from __future__ import annotations

import re
from pathlib import Path

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
SOURCES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/*.md",
    "docs/api/*.md",
    "docs/*.css",
    "docs/results/*.png",
    "bench/results/*/*.md",
    "bench/results/*/*.png",
)
# Files that pages link to and that are not pages.
ATTACHED = ("LICENSE", "CITATION.cff")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replaces the files of docs_dir by the files of the repository that belong to the site."""
    for file in [*files.documentation_pages(), *files.media_files()]:
        if file.src_dir == config.docs_dir:
            files.remove(file)
    for pattern in (*SOURCES, *ATTACHED):
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


class Docstrings(griffe.Extension):
    """Makes griffe resolve names like Python does, and converts docstrings to Markdown."""

    def on_package(self, *, pkg: griffe.Module, **_: object) -> None:
        # ops.gcn is a module for griffe. In Python it is the function of that name, see ops/__init__.py.
        for package in pkg.modules.values():
            for name, module in list(package.modules.items()):
                if name in module.functions:
                    package.set_member(name, module.functions[name])

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(docstring: str) -> str:
    """Converts what griffe's parser for Google's style does not know."""
    # Sphinx's roles, such as :func:`names`, become links; modules have no entry to link to.
    text = re.sub(r":mod:`([^`]+)`", r"`\1`", docstring)
    text = re.sub(r":\w+:`([^`]+)`", r"[`\1`][\1]", text)
    text = re.sub(r"^( *)Example:$", r"\1Examples:", text, flags=re.MULTILINE)
    # "valid, test: ratios" describes two arguments. With a normal space, griffe would take "test" for a type.
    return re.sub(r"^ +\w+(?:, \w+)+: ", lambda names: names[0].replace(", ", ",\u00a0"), text, flags=re.MULTILINE)
