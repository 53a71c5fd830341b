"""A plan in a training loop of one's own: `gradsync.attach(model, optimizer, plan)`, see docs/attach.md."""

from gradsync.attachment.attach import attach
from gradsync.attachment.handle import Attached
from gradsync.attachment.refusal import RefusedError

__all__ = ["Attached", "RefusedError", "attach"]
