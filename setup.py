"""Copies the files that the package needs into a wheel: a checkout has them beside it."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

NEEDED = ("config/schemes.yaml", "config/peers.yaml", "reports/gradsync.mplstyle", "reports/site/**/*")


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


setup(cmdclass={"build_py": WithFiles})
