"""Container images without Docker: archives with one layer that ``ctr images import`` takes."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

#: Where Debian keeps programs and libraries; the pods mount the host's ``/usr``.
_LINKS = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "sbin": "usr/sbin"}
_FOLDERS = ("usr", "etc", "opt", "tmp", "proc", "sys", "dev", "root", "var", "run", "home", "scratch")


def pack(archive: Path, name: str, *, command: str = "", program: Path | None = None) -> None:
    """Write the image *name*: a program alone, or a root with nothing in it but places to mount on.

    Args:
        archive: The file to write.
        name: Repository and tag.
        command: Where the program stands in the image.
        program: A static program; None: the empty root.
    """
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        if program is not None:
            _add(tar, command.lstrip("/"), program.read_bytes())
        else:
            _add_root(tar)
    content = layer.getvalue()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Entrypoint": [command] if command else None,
            "Env": ["PATH=/usr/bin:/bin"],
            "WorkingDir": "/",
        },
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(content).hexdigest()]},
        "history": [{"created_by": "lab"}],
    }
    described = json.dumps(config).encode()
    config_name = hashlib.sha256(described).hexdigest() + ".json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as tar:
        _add(tar, config_name, described)
        _add(tar, "layer.tar", content)
        _add(tar, "manifest.json", json.dumps(manifest).encode())


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.size = 0o755, len(content)
    tar.addfile(entry, io.BytesIO(content))


def _add_root(tar: tarfile.TarFile) -> None:
    for name in _FOLDERS:
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name in ("tmp", "scratch") else 0o755
        tar.addfile(entry)
    for name, target in _LINKS.items():
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = tarfile.SYMTYPE, target
        tar.addfile(entry)
