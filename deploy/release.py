# SPDX-License-Identifier: Apache-2.0
"""Build what a release consists of: ``python -m deploy.release [FOLDER]``.

Of the package and of the agent the wheel and the source distribution, the change log (of the
release note), a CycloneDX SBOM of each image's pinned packages, and ``SHA256SUMS``. The same
sources, pins and ``SOURCE_DATE_EPOCH`` (by default the time of the last commit) give the same
bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import yaml

from deploy import wheels
from deploy.version import version

NOTES = wheels.ROOT / "releasenotes" / "notes"
SECTIONS = {
    "features": "Features",
    "upgrade": "Installing and upgrading",
    "security": "Security",
    "issues": "Known issues",
    "fixes": "Fixes",
}
"""The sections of a release note that the change log has, in its order."""
PINS = {
    "server": wheels.ROOT / "deploy" / "server.txt",
    "agent": wheels.ROOT / "deploy" / "agent" / "requirements.txt",
}
"""By image, the file that pins what pip installs there."""


def build(folder: Path) -> list[Path]:
    """Build everything into a folder; return the paths. Raises CalledProcessError."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("SOURCE_DATE_EPOCH", _last_commit())
    made = [*wheels.build(folder), *_sources(folder)]
    log = folder / "CHANGELOG.md"
    log.write_text(changelog(), "utf-8")
    made += [log, *(_sbom(folder, image, pins) for image, pins in PINS.items())]
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in made]
    listed = folder / "SHA256SUMS"
    listed.write_text("".join(sums), "utf-8")
    return [*made, listed]


def changelog() -> str:
    """Return the change log in Markdown, of the release notes: their only source."""
    parts = [f"# {version()}\n"]
    for path in sorted(NOTES.glob("*.yaml")):
        note: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))  # noqa: TID251
        parts.append(_markdown(note["prelude"]))
        for key, title in SECTIONS.items():
            if note.get(key):
                parts.append(f"## {title}\n")
                parts += [
                    "- " + _markdown(each).replace("\n", "\n  ").rstrip() for each in note[key]
                ]
                parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def _markdown(text: str) -> str:
    """Return a text of a note, which has reStructuredText's literals, in Markdown."""
    return text.replace("``", "`").strip() + "\n"


def _last_commit() -> str:
    command = ["git", "-C", str(wheels.ROOT), "log", "-1", "--format=%ct"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _sources(folder: Path) -> list[Path]:
    """Build both source distributions."""
    with tempfile.TemporaryDirectory() as work:
        made = []
        for names in (wheels.SOURCES, (wheels.AGENT,)):
            (archive,) = wheels.build_kind("--sdist", Path(work), *names)
            made.append(_normal(archive, folder / archive.name))
    return made


def _normal(archive: Path, target: Path) -> Path:
    """Write an archive of sources without what differs from one build to the next: the order, the
    times, the owners."""
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    with (
        tarfile.open(archive) as old,
        target.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            data = old.extractfile(member) if member.isfile() else None
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, data)
    return target


def _sbom(folder: Path, image: str, pins: Path) -> Path:
    """Write the SBOM of what pip installs into an image. The package itself is its component."""
    target = folder / f"mistral-failover-{image}-{version()}.cdx.json"
    program = shutil.which("cyclonedx-py", path=f"{Path(sys.executable).parent}:{os.defpath}")
    if program is None:
        raise FileNotFoundError("cyclonedx-py is missing: pip install 'mistral-failover[release]'")
    command = [program, "requirements", "--output-reproducible", "--of", "JSON", "-o", str(target)]
    subprocess.run([*command, str(pins)], check=True, capture_output=True)
    found = json.loads(target.read_text("utf-8"))  # noqa: TID251
    name = "mistral-failover-agent" if image == "agent" else "mistral-failover"
    found.setdefault("metadata", {})["component"] = {
        "bom-ref": name,
        "type": "application",
        "name": name,
        "version": version(),
        "purl": f"pkg:pypi/{name}@{version()}",
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }
    target.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n", "utf-8")
    return target


def main() -> int:
    """Build into the folder that is named, or ``dist``; print the paths."""
    for path in build(Path(sys.argv[1]) if len(sys.argv) > 1 else wheels.ROOT / "dist"):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
