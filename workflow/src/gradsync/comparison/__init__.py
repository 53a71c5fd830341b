"""What differs between two runs, or between all results of two runs of the workflow.

What is told apart is what may differ, since it was timed, from what may not: settings, what is counted or derived, and
the parameters that one plan with one seed ends with.
"""

from gradsync.comparison.results import compare_results
from gradsync.comparison.runs import compare_runs

__all__ = ["compare_results", "compare_runs"]
