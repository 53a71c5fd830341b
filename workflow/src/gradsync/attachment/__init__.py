"""A plan in a training loop of one's own: `gradsync.attach(model, optimizer, plan)`, see docs/attach.md."""

from gradsync.attachment.handle import Attached
from gradsync.attachment.refusal import RefusedError
from gradsync.attachment.start import attach

__all__ = ["Attached", "RefusedError", "attach"]
