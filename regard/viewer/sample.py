"""The bundled sample: recordings of small models, which the page shows before any model is loaded."""

from functools import cache
from pathlib import Path

from regard.errors import RegardError
from regard.viewer.recording import Recording, unpack_recordings

FOLDER = Path(__file__).parent / "sample"


@cache
def bundled_recordings() -> dict[str, Recording]:
    """Return the bundled recordings by their ids, in the order of their files; empty if the package has no sample."""
    archives = [path.read_bytes() for path in sorted(FOLDER.glob("*.regard"))]
    return {id: recording for archive in archives for id, recording in unpack_recordings(archive).items()}


def sample_recordings() -> dict[str, Recording]:
    """Return the bundled recordings; raise an error if there are none."""
    if not bundled_recordings():
        raise RegardError("this installation has no bundled sample; name a model (-m RUN) and a text")
    return bundled_recordings()
