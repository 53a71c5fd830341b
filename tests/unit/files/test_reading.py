"""Files from outside: what no reader takes, whatever the file is for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gradsync.errors import InputError
from gradsync.files import reading

BOMB = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{p: *a{i - 1}, q: *a{i - 1}}}\n" for i in range(1, 60))
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, 60))
YAML = {
    "[" * 100_000: "nested more than 32 deep",
    "a: 2021-13-45": "month must be in",
    "a: 1\nb: 2\na: 3": "line 3: key 'a' is there twice",
    "? [1]\n: 2": "a list or mapping is a key",
    "a: [1, {b: .inf}]": "a.1.b: inf is no number",
    "a: .nan": "a: nan is no number",
    "a: " + "9" * 5000: "digits",
    "a: 0x" + "f" * 300: "more than 40 digits",
    "a: !!int ''": "not YAML",
    "a: &x [*x]": "an alias stands for what it lies in",
    "x: !!python/object:os.system 1": "not YAML",
    BOMB: "more than 100000 entries",
    MERGES: "more than 100000 entries",
    "\0": "not YAML",
}
JSON = {
    "[" * 1_000_000: "nested too deep",
    '{"a": 1, "b": {"c": 1, "c": 2}}': "key 'c' is there twice",
    '{"a": [NaN]}': "a.0: nan is no number",
    '{"a": 1e999}': "a: inf is no number",
    "9" * 10_000: "a whole number of 10000 digits",
    "": "not JSON",
}


@pytest.mark.parametrize(("text", "wanted"), YAML.items(), ids=range(len(YAML)))
def test_yaml_that_is_refused(text, wanted):
    with pytest.raises(InputError) as refused:
        reading.parse_yaml(text, "file")
    assert wanted in str(refused.value)
    assert len(str(refused.value)) < 400
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("text", "wanted"), JSON.items(), ids=range(len(JSON)))
def test_json_that_is_refused(text, wanted):
    with pytest.raises(InputError) as refused:
        reading.parse_json(text, "file")
    assert wanted in str(refused.value)
    assert len(str(refused.value)) < 400


def test_a_merged_key_may_be_replaced_by_ones_own():
    parsed = reading.parse_yaml("a: &a {x: 1}\nb: &b {<<: *a, x: 2}\nc: {<<: *b, y: 3}", "file")
    assert parsed == {"a": {"x": 1}, "b": {"x": 2}, "c": {"x": 2, "y": 3}}


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/dev/zero", "it is a device"),
        ("a\0b", "no path"),
        ("\ud800", "characters that no file name has"),
        ("x" * 300, "a path of 300 bytes"),
        ("x/" * 4000, "a path of 8000 bytes"),
        ("", "no path"),
        ("/", "can't be read"),
        ("/etc/hostname/below", "can't be read"),
    ],
)
def test_a_path_that_is_no_file(path, wanted):
    with pytest.raises(InputError) as refused:
        reading.text(path, "plan")
    assert wanted in str(refused.value)
    assert len(str(refused.value)) < 400
    str(refused.value).encode()


def test_a_file_beyond_the_limit_is_not_read(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(reading, "MOST_CONFIGURED_BYTES", 1 << 20)
    path = tmp_path / "sparse.yaml"
    with open(path, "wb") as file:
        os.truncate(file.fileno(), 1 << 40)
    with pytest.raises(InputError, match="larger than 1 MiB"):
        reading.yaml_of(path, "configuration")
