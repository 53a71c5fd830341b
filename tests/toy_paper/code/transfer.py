"""What the message takes over one and over two links."""

import pandas as pd

from gradsync.papers.table import Table
from gradsync.papers.testbed import Testbed


def transfer(settings, results):
    """Columns: rung, links, seconds."""
    own = settings.of_paper("toy")
    rate = Testbed(own.testbed).positive("link_bytes_per_second", "value")
    rows = [{"rung": "simulated", "links": n, "seconds": own.message_bytes / (n * rate)} for n in (1, 2)]
    frame = pd.DataFrame(rows)
    return Table(frame, frame, "A message over links.")
