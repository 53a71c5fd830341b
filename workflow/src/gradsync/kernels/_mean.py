"""What kernels that divide a sum of parameters have in common."""

from __future__ import annotations

from gradsync.kernels import Form


def refuse_terms(form: Form) -> None:
    """Raises InputError unless the sum has a whole number of terms."""
    if not form.argument("terms").is_integer():
        form.fail(f"needs a whole number of terms, not {form.argument('terms'):g}")
