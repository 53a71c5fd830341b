"""Table 2: accuracy or BLEU after the last epoch, as published, and of the trainings that Fig. 10 has the curves of.

Differs from the paper: accuracy of the small trainings is top-1, which is what models of ten classes are told by.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from gradsync.configuration.settings import Settings
from gradsync.papers.cloud_topk.convergence import FIG10, KEYS, translated
from gradsync.papers.cloud_topk.numbers import PAPER
from gradsync.papers.labels import MODELS, labels
from gradsync.papers.published import Published
from gradsync.papers.repeats import REPEATS, columns, text
from gradsync.papers.table import Table, file, read

DATA = {"resnet50": "imagenet", "vgg19": "imagenet", "transformer": "wmt17"}
SCHEMES = {"2dtar": "2dtar_sgd", "topk": "topk_sgd", "mstopk": "mstopk_sgd"}  # a number's name: the paper's scheme
TABLE2 = [*KEYS, *columns("accuracy", "bleu"), REPEATS, "note"]


def table2(settings: Settings, results: Path) -> Table:
    """A row per published number, and per contender of the launches that Fig. 10 shows."""
    known, label_of = Published(PAPER, settings), labels(settings)
    published = pd.DataFrame(
        [
            {
                "rung": "published",
                "data": data,
                "model": model,
                "scheme": known.scheme({"scheme": scheme}),
                "bleu" if model == "transformer" else "accuracy": known.value(f"table2-{model}-{number}"),
            }
            for model, data in DATA.items()
            for number, scheme in SCHEMES.items()
        ]
    )
    trained = read(file(results, PAPER, "fig10"), FIG10)
    trained = trained[trained.data != "imagenet"]  # whose published accuracy is top-5
    frame = pd.concat([published, trained]).reindex(columns=TABLE2)
    display = pd.DataFrame(
        [
            {
                "data": row["data"],
                "model": MODELS.get(row.model, row.model),
                "scheme": label_of(row["scheme"] if pd.isna(row.contender) else row.contender),
                "rung": row.rung,
                "accuracy": "-" if pd.isna(row.accuracy) else text(row, "accuracy", ".4f"),
                "BLEU": "-" if pd.isna(row.bleu) else text(row, "bleu", ".2f"),
            }
            for _, row in frame.iterrows()
        ]
    )
    notes = "".join(f" {note}." for note in dict.fromkeys(frame.note.dropna()) if note)
    caption = (
        "Table 2: accuracy after the last epoch. Published is top-5 (ImageNet) and BLEU (WMT17); measured is top-1 of "
        f"small models, the median over seeds, in brackets 95 %.{translated(settings)}{notes}"
    )
    return Table(frame, display, caption)
