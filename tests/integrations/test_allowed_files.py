"""Only files below the allowed folders are read, whatever path is named."""

from __future__ import annotations

import os

import pytest

from workerdiag.integrations.allowed_files import AllowedFiles, NotAllowedError


@pytest.fixture
def tree(tmp_path):
    """An allowed folder beside one that is not, with links from one to the other."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    (inside / "logs").mkdir(parents=True)
    outside.mkdir()
    (inside / "worker.log").write_text("log")
    (inside / "logs" / "a.log").write_text("log")
    (outside / "secret").write_text("secret")
    (inside / "leads-out").symlink_to(outside / "secret")
    (inside / "logs" / "leads-out").symlink_to(outside)
    (inside / "circle").symlink_to(inside / "circle")
    return inside


@pytest.mark.parametrize("path", ["worker.log", "./logs/../worker.log", "{root}/worker.log"])
def test_a_file_inside_is_read(tree, path):
    """By its name in the folder, or by its whole path."""
    assert AllowedFiles.below([tree]).files(path.format(root=tree)) == (tree / "worker.log",)


def test_a_folder_stands_for_its_files(tree):
    """Not for those that a link leads to elsewhere."""
    assert AllowedFiles.below([tree]).files("logs") == (tree / "logs" / "a.log",)
    assert AllowedFiles.below([tree]).files(".") == (tree / "worker.log",)


@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret",
        "{root}/../outside/secret",
        "/etc/passwd",
        "leads-out",
        "logs/leads-out/secret",
        "logs/leads-out",
        "circle",
        "no-such-file",
        "*.log",
        "file:///etc/passwd",
        "s3://bucket/key",
        "-",
        "a\0b",
        "x" * 10_000,
    ],
)
def test_nothing_else_is_read(tree, path):
    """Neither by dots, links, absolute paths, patterns nor addresses; the message says what may be read."""
    with pytest.raises(NotAllowedError, match="in the allowed folders"):
        AllowedFiles.below([tree]).files(path.format(root=tree))


def test_without_a_folder_nothing_is_read():
    """The default is to read nothing."""
    with pytest.raises(NotAllowedError, match="--root"):
        AllowedFiles.below([]).files(os.devnull)
