"""`gradsync image`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from gradsync.errors import InputError
from gradsync.files.writing import refuse_folder, refuse_target


def options(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    parser.add_argument("kind", choices=["base", "cpu", "cuda"], help="the base, or gradsync with that build of torch")
    parser.add_argument("--check", action="store_true", help="build nothing: solve the environment and judge its torch")
    parser.add_argument(
        "--output", type=Path, metavar="IMAGE.sif", help="write the image (default: containers/KIND.sif)"
    )
    parser.add_argument(
        "--base",
        type=Path,
        metavar="IMAGE.sif",
        help="cpu, cuda: their base (default: containers/base.sif, which is built if it is missing)",
    )
    parser.add_argument(
        "--bootstrap", choices=["debootstrap", "docker"], default="debootstrap", help="base: its source"
    )
    parser.add_argument("--mirror", metavar="URL", help="base, debootstrap: of packages (default: this host's)")
    parser.add_argument("--suite", metavar="NAME", help="base, debootstrap: the release (default: this host's)")
    parser.add_argument("--from", dest="registry_image", metavar="IMAGE", help="base, docker: an image of a registry")
    parser.add_argument("--log", type=Path, metavar="FILE", help="all that the build prints (default: by the image)")
    parser.add_argument("--force", action="store_true", help="replace an image that is there")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Build an image that jobs run in, with Apptainer and without privileges; or check what it would hold."""
    from gradsync.images import BASE, BASE_DEFINITIONS, DEFINITIONS, build, fingerprint, solve

    if options.check:
        return solve.check(options.kind)
    output = options.output or Path("containers") / f"{options.kind}.sif"
    log = options.log or output.with_suffix(".log")
    base = options.base or Path("containers") / f"{BASE}.sif"
    source = build.Source(options.bootstrap, options.mirror, options.suite, options.registry_image)
    for option, path in (("--base", base), ("--log", log), ("--output", output)):
        refuse_folder(path.parent, f"{option} {path}:")
        if not path.is_dir():
            refuse_target(path)
    if base.is_dir():
        raise InputError(f"--base {base}: is a folder: name an image, as containers/base.sif")
    if output.is_dir():
        raise InputError(f"--output {output}: is a folder: name a file, as {output / options.kind}.sif")
    if output.exists() and not options.force:
        label = BASE_DEFINITIONS if options.kind == BASE else DEFINITIONS
        if build.labels(output).get(label) == fingerprint(options.kind):
            return {"image": str(output), "built": False, "definitions": fingerprint(options.kind)}
        raise InputError(f"image {options.kind}: {output} was built from other definitions: --force replaces it")
    if options.kind != BASE and options.base and not options.base.exists():
        raise InputError(
            f"--base {options.base}: there is no such image: gradsync image base --output {options.base} builds it; "
            "without --base one is built"
        )
    if options.kind != BASE and not base.exists():
        print(f"image {options.kind}: {base} is missing: building it first", file=sys.stderr)
        build.build(BASE, base, base, source, base.with_suffix(".log"))
    return build.build(options.kind, output, base, source, log)
