"""A plan in a training loop of one's own: `gradsync.attach(model, optimizer, plan)`, see docs/attach.md.

With the plan "auto", or `Auto(...)`, one is chosen while the model trains. `as_ddp` gives stock DDP with the plan's
messages instead, if it can send them.
"""

from gradsync.attachment.auto import Auto
from gradsync.attachment.handle import Attached
from gradsync.attachment.refusal import RefusedError
from gradsync.attachment.start import attach
from gradsync.attachment.stock import as_ddp

__all__ = ["Attached", "Auto", "RefusedError", "as_ddp", "attach"]
