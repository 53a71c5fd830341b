"""Write tables: every row as CSV, what people read as Markdown and LaTeX."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from gradsync.files.results import write_whole
from gradsync.papers.table import Table


def write(table: Table, folder: Path, name: str) -> list[str]:
    """`folder/name.{csv,md,tex}`; returns their paths."""
    parts = [(table.caption, table.display), *table.more]
    texts = {
        "csv": table.frame.to_csv(index=False),
        "md": "\n".join(f"{caption}\n\n{display.to_markdown(index=False)}\n" for caption, display in parts),
        "tex": "\n".join(_latex(caption, display) for caption, display in parts),
    }
    for ending, text in texts.items():
        write_whole(folder / f"{name}.{ending}", text)
    return [str(folder / f"{name}.{ending}") for ending in texts]


def _latex(caption: str, display: pd.DataFrame) -> str:
    latex: str = (
        display.rename(columns=str)
        .style.hide(axis="index")
        .format(escape="latex")
        .format_index(escape="latex", axis=1)
        .to_latex(hrules=True, caption=caption.replace("_", r"\_").replace("%", r"\%"))
    )
    return latex
