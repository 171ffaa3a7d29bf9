"""The bundled sample: recordings of small models, which show what the viewer can before any is loaded."""

from functools import cache
from pathlib import Path

from regard.errors import RegardError
from regard.viewer.recording import Recording, unpack_recordings

FOLDER = Path(__file__).parent / "sample"


@cache
def bundled_recordings() -> dict[str, Recording]:
    """Open the bundled recordings by their ids, in the order of their files; none where the package has no sample."""
    containers = [path.read_bytes() for path in sorted(FOLDER.glob("*.regard"))]
    return {id: recording for container in containers for id, recording in unpack_recordings(container).items()}


def sample_recordings() -> dict[str, Recording]:
    """Give the bundled recordings to somebody who asked for nothing else."""
    if not bundled_recordings():
        raise RegardError("this installation has no bundled sample; name a model: -m RUN, and a text")
    return bundled_recordings()
