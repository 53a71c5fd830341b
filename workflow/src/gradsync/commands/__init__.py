"""The commands, one per file: the parser of each (`options`), and what it does (`run`), which returns what is printed.

They state options, call `experiments` and other rooms, and print. What a command needs in order to run, it imports when
it runs: `gradsync plan` never loads torch.
"""

from gradsync.commands import (
    advise,
    artifact,
    benchmark,
    check,
    claims,
    cluster,
    collective,
    compare,
    count,
    draw,
    elastic,
    emulate,
    estimate,
    export,
    external,
    figure,
    image,
    import_,
    measure,
    parts,
    plan,
    publish,
    simulate,
    site,
    slurm,
    table,
    testbed,
    track,
    train,
)

COMMANDS = (
    *(advise, plan, check, simulate, collective, draw, train, elastic, export, import_, measure, parts, image),
    *(cluster, slurm, testbed, estimate, external, count, emulate, table, figure, claims, site, compare, publish),
    *(artifact, track, benchmark),
)
"""In the order of `gradsync --help`; the name of each is that of its module, without a `_` at the end."""
