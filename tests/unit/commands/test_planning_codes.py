"""`gradsync plan` of schemes with a compressor: what options change of it, and which pairs are refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_lines import LINE, ROOT, workload_json
from gradsync import sparse

SCHEMES = ROOT / "config" / "schemes.yaml"
KEPT = [  # arguments, kernel that encodes, its arguments besides `first`
    (["sign", "--collective", "hitopk"], "encode_sign", {}),
    (["ef_signsgd", "--collective", "allgather_sparse"], "encode_sign", {}),
    (["qsgd_4bit", "--collective", "hitopk"], "encode_qsgd", {"levels": 7, "bucket": 512, "seed": 0}),
    (["qsgd_4bit", "--compressor", "qsgd"], "encode_qsgd", {"levels": 7, "bucket": 512, "seed": 0}),
    (["qsgd_4bit", "--compressor-option", "bucket=64"], "encode_qsgd", {"levels": 7, "bucket": 64, "seed": 0}),
    (["qsgd_4bit", "--compressor", "sign"], "encode_sign", {}),
    (["mstopk_sgd", "--collective", "allgather_sparse"], "encode_mstopk", {}),
    (["wfbp", "--compressor", "sign"], "encode_sign", {}),
    (["wfbp", "--collective", "hitopk"], "encode_exact_topk", {}),
    (["powersgd_rank1", "--compressor", "sign"], "encode_sign", {}),
    (["powersgd_rank1", "--compressor", "sign", "--collective", "hitopk"], "encode_sign", {}),
]
FACTORED = [  # arguments, the collective that sums factors, their rank
    (["powersgd_rank1"], "native", 1),
    (["powersgd_rank1", "--collective", "ring"], "ring", 1),
    (["powersgd_rank4", "--compressor-option", "rank=3"], "native", 3),
    (["ring", "--compressor", "powersgd"], "ring", 2),
    (["wfbp", "--compressor", "powersgd", "--collective", "ring"], "ring", 2),
    (["qsgd_4bit", "--compressor", "powersgd", "--collective", "native"], "native", 2),
]


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    path = tmp_path / "workload.json"
    content = json.loads(workload_json([("second", 400, 1.0), ("first", 400, 1.0)]))
    content["layers"] = [{**layer, "shape": [10, 10]} for layer in content["layers"]]
    path.write_text(json.dumps(content))
    return path


def planning(workload: Path, *arguments: object) -> tuple[object, ...]:
    start = ("plan", "--workload", workload, "--allreduce", LINE, "--ranks", 4, "--schemes", SCHEMES, "--unpredicted")
    return (*start, "--schedule", *arguments)


@pytest.mark.parametrize(("arguments", "kernel", "expected"), KEPT, ids=[" ".join(each[0]) for each in KEPT])
def test_what_no_option_changes_of_a_compressor_is_kept(run, workload, tmp_path, arguments, kernel, expected):
    plan = tmp_path / "plan.json"
    assert run(*planning(workload, *arguments, "--output", plan)).status == 0
    encoding = [op for op in json.loads(plan.read_text())["roles"][0]["body"] if op.get("kernel", "")[:6] == "encode"]
    assert {op["kernel"] for op in encoding} == {kernel}
    for op in encoding:
        assert {key: value for key, value in op.get("arguments", {}).items() if key != "first"} == expected


@pytest.mark.parametrize(("arguments", "collective", "rank"), FACTORED, ids=[" ".join(each[0]) for each in FACTORED])
def test_factors_are_summed_by_the_collective_that_is_asked_for(run, workload, tmp_path, arguments, collective, rank):
    path = tmp_path / "plan.json"
    assert run(*planning(workload, *arguments, "--output", path)).status == 0
    plan = json.loads(path.read_text())
    assert plan["provenance"]["collective"] == collective
    lengths = {buffer["name"]: buffer["elements"] for buffer in plan["buffers"]}
    assert lengths["left"] == lengths["right"] == 2 * 10 * rank


@pytest.mark.parametrize(
    "arguments", [["hitopk", "--compressor", "powersgd"], ["powersgd_rank1", "--collective", "hitopk"]]
)
def test_a_sparse_collective_sums_no_factors(run, workload, arguments):
    refused = run(*planning(workload, *arguments))
    assert refused.status == 2
    assert "choose a collective of sums" in refused.err


@pytest.mark.parametrize("scheme", ["chip_parts", "ring"])
def test_a_compressor_does_not_displace_the_collective_of_a_scheme_unsaid(run, workload, scheme):
    collective = {"chip_parts": "shared_tree"}.get(scheme, scheme)
    refused = run(*planning(workload, scheme, "--compressor", "sign"))
    assert refused.status == 2
    assert f"--compressor sign: scheme {scheme!r} sums by collective {collective!r}" in refused.err
    for collective in sparse.names():
        assert run(*planning(workload, scheme, "--compressor", "sign", "--collective", collective)).status == 0


@pytest.mark.parametrize("scheme", ["sign", "ef_signsgd", "qsgd_4bit", "topk_sgd"])
@pytest.mark.parametrize("collective", ["shared_tree", "ring", "native"])
def test_a_collective_of_whole_gradients_does_not_displace_a_compressor_unsaid(run, workload, scheme, collective):
    refused = run(*planning(workload, scheme, "--collective", collective))
    assert refused.status == 2
    assert f"--collective {collective}: scheme {scheme!r} has compressor" in refused.err


def test_a_compressor_and_a_collective_of_whole_gradients_are_refused_if_both_are_asked_for(run, workload):
    refused = run(*planning(workload, "wfbp", "--compressor", "sign", "--collective", "shared_tree"))
    assert refused.status == 2
    assert "key compressor: only with a collective of sparse messages" in refused.err
