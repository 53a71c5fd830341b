"""Tables and figures of papers as files: for programs and for people, in every format, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from gradsync import papers
from gradsync.drawing import style
from gradsync.errors import InputError
from gradsync.papers import figures
from gradsync.papers.table import read
from made_up_mgwfbp_scaling import configured

FROM_TABLES = ("fig9a", "fig9b", "gap")


def test_tables_are_written_for_programs_and_for_people(gap_and_fig9):
    results, written = gap_and_fig9
    for name, table in written.items():
        folder = results / "tables" / "mgwfbp"
        frame = table.frame.reset_index(drop=True)
        pd.testing.assert_frame_equal(read(folder / f"{name}.csv"), frame, check_dtype=False)
        markdown = (folder / f"{name}.md").read_text()
        assert markdown.startswith(table.caption)
        assert "mgwfbp_as_printed" in markdown
        latex = (folder / f"{name}.tex").read_text()
        assert r"mgwfbp\_as\_printed" in latex
        assert r"\caption" in latex


def test_figures_are_written_in_every_format_even_where_data_is_missing(gap_and_fig9):
    results, _ = gap_and_fig9
    begins = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG", "csv": None}
    for name in FROM_TABLES:
        written = [Path(path) for path in figures.write("mgwfbp", name, configured(), results)]
        assert [path.suffix.lstrip(".") for path in written] == [*style.FORMATS, "csv"]
        for path in written:
            begin = begins[path.suffix.lstrip(".")]
            assert path.stem == name
            assert path.read_bytes().startswith(begin or b"rung,model,nodes,scheme,assumption,iteration_seconds")
        svg = written[0].read_text()
        assert ("fixed buckets (PyTorch DDP)" in svg) is (name == "gap")
        if name != "gap":
            assert "exact optimum" in svg
    assert [path.name for path in (results / "figures" / "mgwfbp").iterdir() if path.name.startswith(".")] == []


def test_an_earlier_figure_survives_one_that_fails(tmp_path, monkeypatch):
    written = [Path(path) for path in figures.write("mgwfbp", "fig1", configured(), tmp_path)]
    before = {path: path.read_bytes() for path in written}

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(InputError, match=r"can't be written: no space left"):
        figures.write("mgwfbp", "fig1", configured(), tmp_path)
    monkeypatch.undo()
    assert {path: path.read_bytes() for path in (tmp_path / "figures" / "mgwfbp").iterdir()} == before


def test_unknown_names_list_the_known_ones(tmp_path):
    with pytest.raises(InputError, match=r"there are: .*mgwfbp"):
        papers.compute("nosuch", "gap", configured(), tmp_path)
    with pytest.raises(InputError, match="it has: table2, timelines"):
        papers.compute("mgwfbp", "nosuch", configured(), tmp_path)
    with pytest.raises(InputError, match="it has: fig1, fig2"):
        figures.write("mgwfbp", "nosuch", configured(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_packages_find_the_style_sheet_of_the_project():
    assert style.SHEET.is_file()
