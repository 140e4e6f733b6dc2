"""The crates of the workspace."""

import pathlib
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def crates():
    """Folders of all crates, relative to the workspace."""
    members = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["members"]
    return sorted(path.relative_to(ROOT) for member in members for path in ROOT.glob(member))
