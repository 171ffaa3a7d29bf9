"""Make all pictures, or those of some groups: `python -m pictures [GROUP ...]`."""

import argparse

from pictures.groups import FOLDER, GROUPS, all_files, write_group

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m pictures", description="Make the pictures of the documentation.")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"{', '.join(GROUPS)}; default: all of them")
    chosen = parser.parse_args().groups or list(GROUPS)
    if unknown := [name for name in chosen if name not in GROUPS]:
        parser.error(f"unknown group {', '.join(unknown)}; the groups are {', '.join(GROUPS)}")
    FOLDER.mkdir(exist_ok=True)
    for name in chosen:
        for path in write_group(GROUPS[name]):
            print(f"{path.relative_to(FOLDER.parent.parent)} ({path.stat().st_size / 1000:.0f} kB)", flush=True)
    for path in FOLDER.iterdir():
        if path.name not in all_files():
            path.unlink()
            print(f"{path.relative_to(FOLDER.parent.parent)}: removed, since no group makes it")
