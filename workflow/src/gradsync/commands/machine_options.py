"""Options of the commands that prepare and look after machines: images, clusters, testbeds, a local Slurm."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path


def _actions(parser: argparse.ArgumentParser, names: str) -> Callable[[str, str], argparse.ArgumentParser]:
    """Subcommands of a subcommand: gives what adds one by its name and text."""
    actions = parser.add_subparsers(metavar=names, dest="action", required=True)

    def action(name: str, text: str) -> argparse.ArgumentParser:
        added = actions.add_parser(
            name, help=text, description=text, formatter_class=argparse.ArgumentDefaultsHelpFormatter
        )
        added.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print the result as JSON")
        return added

    return action


def image(parser: argparse.ArgumentParser) -> None:
    """Options of `gradsync image`."""
    parser.add_argument("kind", choices=["base", "cpu", "cuda"], help="the base, or gradsync with that build of torch")
    parser.add_argument("--check", action="store_true", help="build nothing: solve the environment and judge its torch")
    parser.add_argument("--output", type=Path, metavar="IMAGE.sif", help="(default: containers/KIND.sif)")
    parser.add_argument(
        "--base",
        type=Path,
        metavar="IMAGE.sif",
        help="cpu, cuda: their base (default: containers/base.sif, which is built where it is missing)",
    )
    parser.add_argument(
        "--bootstrap",
        choices=["debootstrap", "docker"],
        default="debootstrap",
        help="base: its source",
    )
    parser.add_argument("--mirror", metavar="URL", help="base, debootstrap: (default: this host's)")
    parser.add_argument("--suite", metavar="NAME", help="base, debootstrap: (default: this host's)")
    parser.add_argument("--from", dest="registry_image", metavar="IMAGE", help="base, docker: an image of a registry")
    parser.add_argument("--log", type=Path, metavar="FILE", help="all that the build prints (default: by the image)")
    parser.add_argument("--force", action="store_true", help="replace an image that is there")


def cluster(parser: argparse.ArgumentParser) -> None:
    """Options of `gradsync cluster`."""
    action = _actions(parser, "measure|show|assemble")
    measure = action("measure", "Measure everything; under srun, or any launcher of ranks, all ranks run this.")
    measure.add_argument("name", metavar="NAME")
    measure.add_argument(
        "--ranks",
        type=int,
        nargs="+",
        metavar="N",
        help="numbers of ranks on one node (default: 2 on processors, 2, 4, .. all on GPUs and under a launcher)",
    )
    measure.add_argument(
        "--models",
        nargs="*",
        default=["all"],
        metavar="NAME[:size=PX][:batch=N]",
        help="whose layers are timed, and whose messages are measured; all, or none after --models",
    )
    measure.add_argument("--iterations", type=int, default=10, help="that are timed of each model")
    measure.add_argument("--smallest", type=int, metavar="BYTES", help="message (default: smallest gradient)")
    measure.add_argument("--largest", type=int, metavar="BYTES", help="message (default: all of the largest model)")
    measure.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    measure.add_argument(
        "--only", nargs="+", choices=["nodes", "links", "layers"], help="only parts, to be assembled (default: all)"
    )
    measure.add_argument(
        "--parts", type=Path, metavar="FOLDER", help="where parts are kept (default: beside the output, hidden)"
    )
    measure.add_argument("--force", action="store_true", help="measure again what is kept")
    measure.add_argument("--launched", action="store_true", help=argparse.SUPPRESS)  # our own launcher assembles
    show = action("show", "A measured cluster as tables.")
    show.add_argument("file", metavar="FILE")
    assemble = action("assemble", "One profile of parts that several jobs have measured.")
    assemble.add_argument("name", metavar="NAME")
    assemble.add_argument(
        "--part", type=Path, nargs="+", required=True, metavar="FILE.json", help="what measure --only leaves behind"
    )
    assemble.add_argument(
        "--workload", type=Path, nargs="+", default=[], metavar="W.json", help="what gradsync measure layers writes"
    )
    for added in (measure, assemble):
        added.add_argument("--output", type=Path, metavar="FILE.yaml", help="(default: config/clusters/NAME.yaml)")


def testbed(parser: argparse.ArgumentParser) -> None:
    """Options of `gradsync testbed`."""
    action = _actions(parser, "check|clean")
    check = action("check", "Make hosts and limited links, measure them, remove them; says where that can't be.")
    check.add_argument("--rate", type=float, default=4e8, metavar="BITS_PER_SECOND", help="of a link")
    check.add_argument("--output", type=Path, metavar="FILE.json", help="write what is printed with --json")
    action("clean", "Remove networks that killed runs have left behind; nothing else is touched.")


def on_testbed(parser: argparse.ArgumentParser) -> None:
    """Options of commands whose ranks may run on hosts of a testbed."""
    parser.add_argument(
        "--testbed",
        metavar="NAME[:N,..]|FILE.json",
        help="ranks on hosts of their own on this machine (Linux; root, or a user namespace), wired as a topology: "
        "switch, bcube:3,2, dense_gpu:2,4; or as a file says, with its rates",
    )
    parser.add_argument(
        "--rate", type=float, default=4e8, metavar="BITS_PER_SECOND", help="--testbed NAME: of a link, each way"
    )
    parser.add_argument(
        "--flow-rate",
        type=float,
        metavar="BITS_PER_SECOND",
        help="--testbed NAME: the most that two hosts send each other over a link (default: all of it)",
    )


def slurm(parser: argparse.ArgumentParser) -> None:
    """Options of `gradsync slurm`."""
    action = _actions(parser, "start|stop|status|check|why")
    start = action("start", "A real Slurm of several nodes on this machine, to try the profile; prints what to export.")
    start.add_argument("--nodes", type=int, default=4)
    start.add_argument("--cpus", type=int, default=2, help="that a node claims, whatever this machine has")
    start.add_argument(
        "--gpus-per-node", type=int, default=0, help="that a node claims: stand-ins, with nothing behind"
    )
    start.add_argument("--memory", type=int, metavar="MB", help="that a node claims (default: its share of all)")
    stop = action("stop", "End it and its jobs.")
    status = action("status", "What runs of it.")
    for added in (start, stop, status):
        added.add_argument("--folder", type=Path, default=Path("results/slurm"), help="where all of it lies")
    check = action("check", "Whether this cluster would take the largest job; what to change where not.")
    check.add_argument("--partition", metavar="NAME", help="(default: the cluster's)")
    check.add_argument("--account", metavar="NAME", help="(default: yours)")
    check.add_argument("--nodes", type=int, default=1)
    check.add_argument("--cpus", type=int, default=1, help="of a node")
    check.add_argument("--gpus-per-node", type=int, default=0)
    check.add_argument("--memory", type=int, default=0, metavar="MB", help="of a node")
    check.add_argument("--minutes", type=int, default=0, help="that the job may take")
    why = action("why", "Why jobs of a run failed, and what to change.")
    why.add_argument("log", nargs="?", type=Path, metavar="LOG", help="of Snakemake (default: the newest here)")
