"""Write tables: every row as CSV, what people read as Markdown and LaTeX."""

from __future__ import annotations

from pathlib import Path

from gradsync.papers.table import Table
from gradsync.results import write_whole


def write(table: Table, folder: Path, name: str) -> list[str]:
    """`folder/name.{csv,md,tex}`; gives their paths."""
    texts = {
        "csv": table.frame.to_csv(index=False),
        "md": f"{table.caption}\n\n{table.display.to_markdown(index=False)}\n",
        "tex": _latex(table),
    }
    for ending, text in texts.items():
        write_whole(folder / f"{name}.{ending}", text)
    return [str(folder / f"{name}.{ending}") for ending in texts]


def _latex(table: Table) -> str:
    caption = table.caption.replace("_", r"\_").replace("%", r"\%")
    escaped = table.display.rename(columns=str)
    return (
        escaped.style.hide(axis="index")
        .format(escape="latex")
        .format_index(escape="latex", axis=1)
        .to_latex(hrules=True, caption=caption)
    )
