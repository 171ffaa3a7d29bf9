"""`regard forecast`: where the agents of a scene may go, as a table and as a picture."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.console import complain
from regard.cli.sink import Sink, check_apart
from regard.cli.text import DeviceName, ModelFolder, OutputFile, PrecisionName, SavedStep, open_model
from regard.errors import InputError


def forecast_command(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="Tracks: a row with frame, agent, x and y for each agent and step. Default: the scene "
            "that comes with the model of regard.",
            show_default=False,
        ),
    ] = None,
    model: ModelFolder = None,
    step: SavedStep = None,
    frame: Annotated[
        int | None,
        typer.Option(metavar="N", help="The last frame that is seen. Default: the last one.", show_default=False),
    ] = None,
    output: OutputFile = None,
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the scene with its futures: .svg, .png or .pdf.", show_default=False),
    ] = None,
    device: DeviceName = "auto",
    precision: PrecisionName = "auto",
) -> None:
    """Forecast the agents of a scene.

    Prints a table with a row for each agent, future and step: FRAME, AGENT, FUTURE, PROBABILITY, X, Y. The futures of
    an agent are numbered from the most likely one. All agents that are in the last frame are forecast, from as many
    of the steps before as the model observes. If the file continues after that frame, the picture shows what happened.

    Examples:
      regard forecast --picture scene.svg
      regard forecast tracks.txt -m runs/trajectories-1
      regard forecast tracks.txt -m runs/trajectories-1 --frame 7800 -o futures.csv --picture scene.svg
    """
    from regard.data.read import Skipped
    from regard.data.tracks import observe_scene, read_tracks
    from regard.draw.file import REMOVED_METADATA, write_figure
    from regard.draw.scene import scene as draw_scene
    from regard.use.evaluate import shipped_files
    from regard.use.forecast import scene_steps

    if picture is not None and picture.suffix.lower().removeprefix(".") not in REMOVED_METADATA:
        raise InputError(f"{picture}: unknown picture format '{picture.suffix}'; use .svg, .png or .pdf")
    check_apart(output, picture, "picture")
    with Sink(output) as sink:
        skipped = Skipped()
        tracks = None if file is None else read_tracks(file, skipped)
        for line in skipped.report():
            complain(line)
        loaded = open_model(model, device, precision=precision, step=step, verb="forecast")
        observed, predicted = scene_steps(loaded.bundle)
        if tracks is None:
            shipped = shipped_files(loaded.bundle)
            if not shipped:
                raise InputError("name a FILE with rows of frame, agent, x and y; only models of regard have a scene")
            tracks = read_tracks(Path(shipped[0]), skipped)
            frame = tracks.frame(int(tracks.times.max()) - predicted) if frame is None else frame
            complain(f"the scene is {tracks.name}, frame {frame}; name a FILE for another")
        found = loaded.forecast(observe_scene(tracks, frame, observed, predicted))
        if picture is not None:  # before the table, so that a picture that cannot be written leaves none
            seen = found.scene
            title = f"{Path(tracks.name).name}, frame {seen.frame}"
            figure = draw_scene(
                seen.positions, found.paths, found.probabilities, seen.agents, truth=seen.truth, title=title
            )
            write_figure(figure, picture)
        sink.write(found.to_csv())
