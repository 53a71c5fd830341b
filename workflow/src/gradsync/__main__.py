"""`python -m gradsync`; it becomes several ranks where a launch asks it to."""

from gradsync.cli import main
from gradsync.runtime.forking import become_ranks

become_ranks()
raise SystemExit(main())
