"""The cluster profiler: what nodes are, who all-reduces with whom, and one small cluster really measured."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from gradsync import clusters
from gradsync.cli import main
from gradsync.clusters import choice, nodes, parts
from gradsync.errors import InputError, RunError
from gradsync.measure import cluster, cluster_gpus, cluster_links, cluster_nodes, cluster_progress
from gradsync.measure.cluster_nodes import Place, Placement
from gradsync.runtime import models
from gradsync.runtime.devices import PROCESSOR
from gradsync.slurm.machine import free_ports
from waiting import HANGS_SECONDS

# Nodes


def test_ranks_with_one_kernel_are_on_one_node():
    places = [Place("boot1", "a", ""), Place("boot2", "b", ""), Place("boot1", "a", ""), Place("boot2", "b", "")]
    assert cluster_nodes.placement_of(places) == Placement([[0, 2], [1, 3]], ["a", "b"], [])
    assert cluster_nodes.placement_of(places).ranks_per_node == 2


def test_nodes_that_only_a_scheduler_tells_apart_are_one_and_that_is_noted():
    placement = cluster_nodes.placement_of([Place("boot", "host", f"n{i}") for i in (1, 2, 2)])
    assert placement.ranks == [[0, 1, 2]]
    assert placement.notes == ["Slurm calls host by 2 names (n1, n2): it is one node, with one memory"]


def test_unevenly_spread_ranks_are_refused_by_name():
    with pytest.raises(RunError, match=r"\(a 2, b 1\).*--ntasks-per-node"):
        cluster_nodes.placement_of([Place("1", "a", ""), Place("2", "b", ""), Place("1", "a", "")])


def test_this_machine_is_told_as_the_kernel_has_it():
    node = cluster_nodes.this_node()
    assert node.processor.cores == (psutil.cpu_count(logical=False) or node.processor.threads)
    assert node.processor.threads == psutil.cpu_count()
    assert node.processor.usable == len(os.sched_getaffinity(0))
    assert node.memory_gib == pytest.approx(psutil.virtual_memory().total / 2**30, abs=0.06)
    assert {each.name for each in node.interfaces if ":" not in each.name} <= set(os.listdir("/sys/class/net"))
    assert node.software["torch"] == torch.__version__
    assert cluster_nodes.this_place().host == socket.gethostname()


def write(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    return root


def test_sockets_cores_threads_and_numa_parts_are_counted(tmp_path):
    files = {}
    for cpu in range(8):  # two sockets of two cores of two threads
        folder = f"devices/system/cpu/cpu{cpu}/topology"
        files |= {f"{folder}/physical_package_id": str(cpu // 2 % 2), f"{folder}/core_id": str(cpu % 2)}
    for part, cpus in enumerate(("0-1,4-5", "2-3,6-7")):
        folder = f"devices/system/node/node{part}"
        files |= {
            f"{folder}/cpulist": cpus,
            f"{folder}/meminfo": f"Node {part} MemTotal:  33554432 kB\nNode {part} x: 1 kB",
        }
    processor = cluster_nodes.processor(write(tmp_path, files))
    assert (processor.sockets, processor.cores, processor.threads) == (2, 4, 8)
    assert [(part.number, part.cpus, part.memory_gib) for part in processor.numa] == [
        (0, "0-1,4-5", 32.0),
        (1, "2-3,6-7", 32.0),
    ]


def test_interfaces_have_the_speed_that_their_driver_states(tmp_path):
    net, ib = "class/net", "class/infiniband/mlx5_0/ports"
    files = {
        **{f"{net}/eth0/{k}": v for k, v in {"device/x": "", "operstate": "up", "type": "1", "speed": "25000"}.items()},
        **{f"{net}/eth1/{k}": v for k, v in {"device/x": "", "operstate": "down", "type": "1", "speed": "-1"}.items()},
        **{f"{net}/ens3/{k}": v for k, v in {"device/x": "", "operstate": "up", "type": "1", "speed": "-1"}.items()},
        **{f"{net}/ib0/{k}": v for k, v in {"device/x": "", "operstate": "up", "type": "32"}.items()},
        **{f"{net}/lo/{k}": v for k, v in {"operstate": "unknown", "type": "772"}.items()},
        f"{ib}/1/state": "4: ACTIVE",
        f"{ib}/1/rate": "100 Gb/sec (4X EDR)",
        f"{ib}/1/link_layer": "InfiniBand",
        f"{ib}/2/state": "1: DOWN",
        f"{ib}/2/rate": "10 Gb/sec (4X)",
    }
    interfaces = cluster_nodes.interfaces(write(tmp_path, files))
    assert [(each.name, each.kind, each.gbit_per_second) for each in interfaces] == [
        ("ens3", "ethernet", None),
        ("eth0", "ethernet", 25.0),
        ("ib0", "infiniband", None),
        ("mlx5_0:1", "infiniband", 100.0),
    ]


def test_the_interface_of_the_environment_is_the_one_in_use(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "ib0")
    assert cluster_nodes.gloo_interface() == "ib0"
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    assert cluster_nodes.gloo_interface() in psutil.net_if_addrs()


# GPUs: the table is of the form that `nvidia-smi topo -m` prints, underlined heading and NICs included

TOPOLOGY = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV2\tSYS\tPIX\t0-15\t0\t\tN/A
GPU1\tNV2\t X \tPHB\tNODE\t0-15\t0\t\tN/A
GPU2\tSYS\tPHB\t X \tSYS\t16-31\t1\t\tN/A
NIC0\tPIX\tNODE\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
"""


def gpu(pci: str) -> nodes.Gpu:
    return nodes.Gpu(name="g", pci=pci, memory_gib=16.0, compute_capability="7.0", multiprocessors=80)


def test_links_between_gpus_are_read_from_the_drivers_table():
    addresses = {0: "00000000:1b:00.0", 1: "00000000:0a:00.0", 2: "00000000:2c:00.0"}
    words = cluster_gpus.LinkWords("nvidia-smi topo -m", cluster_gpus.topology(TOPOLOGY, addresses))
    in_order = tuple(gpu(addresses[number]) for number in (1, 0, 2))  # torch may count otherwise than the driver
    links = cluster_gpus.matrix(in_order, [None, words])
    assert links is not None
    assert links.matrix == (("X", "NV2", "PHB"), ("NV2", "X", "SYS"), ("PHB", "SYS", "X"))
    unknown = cluster_gpus.matrix((*in_order, gpu("00000000:ff:00.0")), [words])
    assert unknown is not None
    assert unknown.matrix[3] == ("?", "?", "?", "X")


def test_a_node_without_gpu_has_none_and_no_error():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    assert cluster_gpus.visible() == ()
    assert cluster_gpus.links() is None
    assert cluster_gpus.matrix((), [None]) is None
    assert cluster_gpus.software() == {}
    assert cluster_gpus.topology("", {}) == {}


# Who all-reduces with whom


@pytest.mark.parametrize(("most", "numbers"), [(0, []), (1, []), (2, [2]), (6, [2, 4, 6]), (8, [2, 4, 8])])
def test_numbers_are_powers_of_two_and_the_most(most, numbers):
    assert cluster_links.powers(most) == numbers


def names(placement: Placement, inside: list[int] | None = None) -> list[str]:
    return [layout.name for layout in cluster_links.layouts(placement, inside)]


def test_a_cluster_is_measured_inside_between_and_over_everything():
    placement = Placement([[0, 3], [1, 4], [2, 5]], ["a", "b", "c"], [])
    teams = {layout.name: layout.teams for layout in cluster_links.layouts(placement)}
    assert teams == {
        "inside-1x2": ((0, 3), (1, 4), (2, 5)),
        "between-2x1": ((0, 1),),
        "between-3x1": ((0, 1, 2),),
        "everything-2x2": ((0, 3, 1, 4),),
        "everything-3x2": ((0, 3, 1, 4, 2, 5),),
    }
    assert cluster_links.reasons(placement) == {}


def test_what_there_is_not_has_a_reason():
    one_node = Placement([[0, 1, 2, 3]], ["a"], [])
    assert names(one_node) == ["inside-1x2", "inside-1x4"]
    assert names(one_node, [3, 9, 1]) == ["inside-1x3"]
    assert set(cluster_links.reasons(one_node)) == {"between", "everything"}
    one_each = Placement([[0], [1]], ["a", "b"], [])
    assert names(one_each) == ["between-2x1"]
    assert set(cluster_links.reasons(one_each)) == {"inside", "everything"}
    alone = Placement([[0]], ["a"], [])
    assert names(alone) == []
    assert set(cluster_links.reasons(alone)) == {"inside", "between", "everything"}


def test_the_slowest_node_counts():
    layout = cluster_links.Layout("inside", 1, 2, ((0, 1), (2, 3)))
    quick = [{400: [1.0, 3.0], 800: [4.0]}, {400: [2.0, 2.0], 800: [4.0]}]
    slow = [{size: [2 * t for t in times] for size, times in sweep.items()} for sweep in quick]
    times = cluster_links.slowest([quick, slow], layout, PROCESSOR)
    assert times.slowest_over_fastest == pytest.approx(2.0)
    assert [(p.bytes, p.seconds, p.mean_seconds, p.repeats) for p in times.points] == [(400, 4, 4, 4), (800, 8, 8, 2)]
    assert {(p.seconds_low, p.seconds_high) for p in times.points} == {(None, None)}  # of two sweeps
    assert times.line.b_seconds_per_byte == pytest.approx(0.01)
    assert times.line.a_seconds == pytest.approx(0.0, abs=1e-9)


def test_repeats_of_a_cluster_are_its_sweeps_not_the_messages_of_one():
    """A slow moment falls on all messages of a sweep: a thousand of them are no surer than that one."""
    layout = cluster_links.Layout("between", 2, 1, ((0, 1),))
    sweeps = [{400: [level] * 1000, 800: [2 * level] * 1000} for level in (1.0, 1.2, 1.1, 1.6, 1.3, 1.4)]
    point = cluster_links.slowest([sweeps], layout, PROCESSOR).points[0]
    assert (point.seconds, point.seconds_low, point.seconds_high, point.repeats) == (1.25, 1.0, 1.6, 6000)


@pytest.mark.deep
def test_parts_of_the_ranks_all_reduce_while_the_others_wait(on_ranks):
    by_rank = on_ranks("cluster_teams", 4)
    layouts = [layout for layout, _ in by_rank[0]]
    assert [layout.name for layout in layouts] == ["inside-1x2", "between-2x1", "everything-2x2"]
    assert all(times is None for of_rank in by_rank[1:] for _, times in of_rank)
    for layout, times in by_rank[0]:
        assert (times.nodes, times.ranks_per_node) == (layout.nodes, layout.ranks_per_node)
        assert times.line.sweeps == cluster_links.SWEEPS
        assert [point.bytes for point in times.points][:: len(times.points) - 1] == [400, 40_000]
        assert all(0 < point.seconds_low <= point.seconds <= point.seconds_high for point in times.points)
        assert (times.slowest_over_fastest is None) == (layout.kind != "inside")


# How long it takes, and what is measured


def test_a_model_is_counted_without_its_memory():
    counts = cluster_progress.count("lenet5", None, 2)
    sizes = [4 * parameter.numel() for parameter in models.build("lenet5", 0).parameters()]
    assert (counts.smallest, counts.total) == (min(sizes), sum(sizes))
    # two operations a weight and output pixel
    assert counts.operations == 2 * (25 * 32 * 28**2 + 25 * 32 * 64 * 14**2 + 64 * 7 * 7 * 1024 + 1024 * 10)


def test_what_is_done_corrects_what_is_left(capsys, monkeypatch):
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr(cluster_progress, "time", clock)
    now = 100.0
    progress = cluster_progress.Progress({"a": 0.001, "b": 1.0, "c": 5.0}, {"a": "x", "b": "x", "c": "y"})
    assert progress.remaining() == pytest.approx(6.001)
    progress.start("a", "part a")
    now += 0.01  # it took ten times as long
    progress.done("a")
    assert progress.remaining() == pytest.approx(5.0 + 10.0)
    assert "[1/3] part a; about 6 s to go" in capsys.readouterr().err


def test_messages_range_from_the_smallest_gradient_to_the_largest_model():
    counted = [cluster_progress.Counted(40, 1000, 1), cluster_progress.Counted(64, 9000, 1)]
    assert cluster.message_range(counted, None, None) == (40, 9000)
    assert cluster.message_range(counted, 400, 800) == (400, 800)
    assert cluster.message_range([], None, None) == (cluster.SMALLEST, cluster.LARGEST)
    with pytest.raises(InputError, match="--smallest 4000: more than --largest 400"):
        cluster.message_range(counted, 4000, 400)


TINY = ["--models", "lenet5:batch=2", "--iterations", "2", "--smallest", "400", "--largest", "40000"]


@pytest.mark.deep
def test_one_command_measures_this_machine_and_goes_on_where_it_was(tmp_path, capfd):
    """Two real ranks: the profile, plans from it, and a second run that measures nothing but what is missing."""
    output = tmp_path / "here.yaml"
    command = ["cluster", "measure", "here", "--ranks", "2", *TINY, "--output", str(output)]
    assert main(command) == 0
    assert "[3/3] layers of lenet5" in capfd.readouterr().err
    profile = clusters.load(output)
    assert (profile.nodes.count, profile.nodes.ranks_per_node) == (1, 2)
    assert profile.nodes.kinds[0].hosts == (socket.gethostname(),)
    (inside,) = profile.allreduce.inside.measured or ()
    assert (inside.ranks, inside.backend, inside.line.sweeps) == (2, "gloo", cluster_links.SWEEPS)
    assert profile.allreduce.between.measured is None
    assert "one node" in (profile.allreduce.between.reason or "")
    load, notes = choice.workload(profile, output, "lenet5", 2)
    assert (len(load.layers), load.provenance["batch"], notes) == (8, 2, [])
    planning = ["plan", "--cluster", str(output), "--workload", "lenet5", "--schedule", "mgwfbp", "--json"]
    assert main(planning) == 0
    assert json.loads(capfd.readouterr().out)["iteration_seconds"] > load.forward_seconds + load.backward_seconds

    folder = tmp_path / ".here.parts"
    (folder / "layers-lenet5-1x2.json").write_text('{"part": "layers", "half')  # killed while it wrote
    before = output.read_text()
    assert main(command) == 0
    printed = capfd.readouterr().err
    assert "2 part(s) of 3 are there already" in printed
    assert "[1/1] layers of lenet5" in printed
    assert clusters.load(output).allreduce == profile.allreduce
    assert output.read_text() != before  # other layer times
    assert (folder / ".gitignore").read_text() == "*\n"
    assert isinstance(parts.read(folder / "layers-lenet5-1x2.json"), parts.LayersPart)


def test_ranks_of_another_launcher_measure_and_rank_0_writes(tmp_path):
    (port,) = free_ports(1)
    output = tmp_path / "there.yaml"
    arguments = [
        "cluster",
        "measure",
        "there",
        "--models",
        "--smallest",
        "400",
        "--largest",
        "4000",
        "--output",
        str(output),
    ]
    children = []
    try:
        for rank in range(2):
            of_rank = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
            environment = {**os.environ, **of_rank, "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
            command = [sys.executable, "-m", "gradsync", *arguments]
            children.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
        answers = [child.communicate(timeout=HANGS_SECONDS)[0] for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert [child.returncode for child in children] == [0, 0]
    profile = clusters.load(output)
    assert [one.ranks for one in profile.allreduce.all()] == [2]
    assert profile.workloads == ()
    assert "there: 1 node(s), 2 rank(s)" in answers[0]
    assert answers[1] == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["k/80"], "a name has letters"),
        (["x", "--output", "x.json"], "must end in .yaml"),
        (["x", "--models", "resnet51"], "model 'resnet51' does not exist"),
        (["x", "--models", "resnet50:size=big"], "NAME:size=PIXELS:batch=SAMPLES"),
        (["x", "--models", "vgg19:size=16"], "the smallest is 32"),
        (["x", "--models", "lenet5", "lenet5:batch=2"], "a model is named twice"),
        (["x", "--iterations", "1"], "--iterations 1: at least 2"),
        (["x", "--largest", "0"], "--largest 0: at least 4"),
        (["x", "--ranks", "0"], "--ranks 0: at least 1"),
        (["x", "--ranks", "2000"], "more than this machine can hold"),
    ],
)
def test_what_can_not_be_measured_is_refused_before_anything_starts(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["cluster", "measure", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
