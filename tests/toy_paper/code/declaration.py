"""The toy paper: its table and figure, and what they are made from."""

from gradsync.papers.toy.transfer import transfer

from gradsync.papers.declaration import Paper, figure, table, testbed

PAPER = Paper(
    inputs=(testbed,),
    tables={"transfer": table(transfer)},
    figures={"transfer": figure("transfer")},
)
