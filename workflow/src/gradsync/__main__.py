"""`python -m gradsync`."""

from gradsync.cli import main

raise SystemExit(main())
