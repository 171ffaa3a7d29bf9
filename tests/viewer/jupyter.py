"""A real JupyterLab: a server on a free port, and a notebook in the browser whose cells a test can run."""

import json
import os
import re
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from threading import Thread

import nbformat
import pytest
from playwright.sync_api import Browser, Locator, Page

from ..processes import PATIENCE

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},  # all cells are in the page
    "@jupyterlab/apputils-extension/notification": {"checkForUpdates": False, "fetchNews": "false"},
    "@jupyterlab/docmanager-extension/plugin": {"autosave": False},
    "@jupyter-widgets/jupyterlab-manager/plugin": {"saveState": True},
}
PANEL = "[...window.jupyterapp.shell.widgets('main')].find((each) => each.context?.path === name)"
RUN = f"""async ([name, code, cell]) => {{
  const notebook = {PANEL}.content, commands = window.jupyterapp.commands;
  if (cell === null) {{
    notebook.activeCellIndex = notebook.widgets.length - 1;
    await commands.execute("notebook:insert-cell-below");
  }} else notebook.activeCellIndex = cell;
  if (code !== null) notebook.activeCell.model.sharedModel.setSource(code);
  await commands.execute("notebook:run-cell");
  return notebook.activeCellIndex;
}}"""
OPEN = f"""async (name) => {{
  await window.jupyterapp.restored;
  await window.jupyterapp.commands.execute("docmanager:open", {{ path: name }});
  const panel = {PANEL};
  await Promise.all([panel.context.ready, panel.sessionContext.ready]);
}}"""


class Lab:
    """A running JupyterLab, and the page in which a notebook is open."""

    def __init__(self, page: Page, address: str, token: str, folder: Path) -> None:
        self.page, self.address, self.token, self.folder, self.name = page, address, token, folder, ""
        self.requests: list[str] = []

    def open(self, name: str) -> None:
        """Open a notebook of the folder (an empty one if it does not exist) and wait for its kernel."""
        path = self.folder / name
        if not path.exists():
            nbformat.write(
                nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}}), path
            )
        self.name = name
        self.page.goto(f"{self.address}/lab/workspaces/{path.stem}?token={self.token}")
        self.page.wait_for_function("window.jupyterapp !== undefined")
        self.page.evaluate(OPEN, name)

    def run(self, code: str | None, cell: int | None = None) -> Locator:
        """Run code in a new cell, or run a cell again; wait for its end and return its outputs."""
        index = self.page.evaluate(RUN, [self.name, code, cell])
        return self.cell(index)

    def cell(self, index: int) -> Locator:
        return self.page.locator(".jp-Notebook .jp-Cell").nth(index).locator(".jp-Cell-outputArea")

    def active(self) -> int:
        """Return the index of the active cell."""
        return self.page.evaluate(f"(name) => {PANEL}.content.activeCellIndex", self.name)

    def activate(self, index: int) -> None:
        self.page.evaluate(f"([name, index]) => {{ {PANEL}.content.activeCellIndex = index; }}", [self.name, index])

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def command(self, name: str, **arguments: object) -> None:
        script = "async ([name, given]) => { await window.jupyterapp.commands.execute(name, given); }"
        self.page.evaluate(script, [name, arguments])

    def restart(self) -> None:
        """Restart the kernel, and wait until it answers."""
        kernel = f"{PANEL}.sessionContext.session.kernel"
        self.page.evaluate(f"async (name) => {{ await {kernel}.restart(); await {kernel}.info; }}", self.name)

    def save(self) -> nbformat.NotebookNode:
        """Save the open notebook, and read it."""
        self.page.evaluate(f"async (name) => {{ await {PANEL}.context.save(); }}", self.name)
        return nbformat.read(self.folder / self.name, 4)


@contextmanager
def notebook(browser: Browser, folder: Path) -> Iterator[Lab]:
    """Start JupyterLab, and open an empty notebook in a window of its own."""
    with serving(folder) as (address, token):
        context = browser.new_context(viewport={"width": 1400, "height": 900})
        context.set_default_timeout(PATIENCE * 1000)
        lab = Lab(context.new_page(), address, token, folder / "work")
        context.on("request", lambda request: lab.requests.append(request.url))
        lab.open("notebook.ipynb")
        yield lab
        context.close()


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, str]]:
    """Start a server whose settings are all in a folder; yield its address and its token."""
    token, work = token_hex(16), folder / "work"
    work.mkdir(parents=True)
    for name, values in SETTINGS.items():
        file = folder / "settings" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    places = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "IPYTHONDIR": "ipython",
    }
    environment = os.environ | {name: str(folder / place) for name, place in places.items()}
    environment |= {"PYTHONPATH": str(ROOT), "JUPYTER_TOKEN": token, "REGARD_CHECK_SHAPES": "0"}
    options = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": "0",
        "ServerApp.open_browser": "False",
        "ServerApp.root_dir": str(work),
        "ServerApp.allow_root": "True",
        "LabApp.expose_app_in_browser": "True",
        "LabApp.news_url": "",
    }
    command = [sys.executable, "-m", "jupyterlab", *(f"--{name}={value}" for name, value in options.items())]
    server = subprocess.Popen(
        command, env=environment, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        address = _address(server)
        drain = Thread(target=deque, args=(server.stdout, 0), daemon=True)  # a full pipe would stop the server
        drain.start()
        yield address, token
    finally:
        server.terminate()  # which ends its kernels, too
        server.wait(PATIENCE)
        server.stdout.close()


def _address(server: "subprocess.Popen[str]") -> str:
    """Read what the server prints until it says its address; fail if it ends before."""
    said = []
    for line in server.stdout or ():
        said.append(line)
        if found := re.search(r"http://127\.0\.0\.1:[1-9]\d*(?=/lab)", line):
            return found[0]
    pytest.fail("JupyterLab does not start:\n" + "".join(said), pytrace=False)
