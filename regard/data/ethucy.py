"""Unpack the recordings of pedestrians of ETH (Pellegrini et al. 2009) and UCY (Lerner et al. 2007).

The archive has a folder for each of five scenes, with train, val and test: the test recordings are of this scene, the
others of the other scenes (leave-one-out, as Gupta et al. 2018 split them).
"""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from pathlib import Path

from regard.atomic import make_folder, write_file

ARCHIVE = "ethucy.tar"


def pack_ethucy(found: Mapping[str, Path], to: Path) -> None:
    """Write SCENE/train, SCENE/val and SCENE/test; the test recordings last, so that they show that all are there."""
    with tarfile.open(found[ARCHIVE]) as archive:
        members = [member for member in archive.getmembers() if member.isfile()]
        for member in sorted(members, key=lambda member: "/test/" in member.name):
            content = archive.extractfile(member)
            assert content is not None
            path = to / member.name  # the checksum of the archive was compared, so its names are known
            make_folder(path.parent)
            with write_file(path) as part:
                part.write_bytes(content.read())
