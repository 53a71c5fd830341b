"""What the package needs: files, of which a wheel has copies and a checkout those beside it, and other packages."""

import re
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

NEEDED = (
    "config/schemes.yaml",
    "config/peers.yaml",
    "config/networks/described.yaml",
    "reports/gradsync.mplstyle",
    "reports/site/**/*",
)


class WithFiles(build_py):
    """The modules, and these files below `gradsync/packaged/`."""

    def run(self) -> None:
        """Copy them."""
        super().run()
        if self.editable_mode:
            return
        for path in (each for pattern in NEEDED for each in sorted(Path().glob(pattern)) if each.is_file()):
            target = Path(self.build_lib, "gradsync", "packaged", path)
            self.mkpath(str(target.parent))
            self.copy_file(str(path), str(target))


def requirements() -> list[str]:
    """torch and what `envs/common.txt` names, from the versions on that are tested; an environment may pin its own."""
    common, *others = (Path(f"envs/{name}.txt").read_text() for name in ("common", "requirements", "constraints"))
    tested = re.findall(r"^([\w-]+)==([\w.]+)$", "".join([common, *others]), re.MULTILINE)
    versions = {canonical(name): version for name, version in tested}
    return [f"{name}>={versions[canonical(name)]}" for name in ("torch", *re.findall(r"(?m)^\w[\w-]*", common))]


def canonical(name: str) -> str:
    """A distribution's name as another may write it."""
    return name.lower().replace("_", "-")


setup(cmdclass={"build_py": WithFiles}, install_requires=requirements())
