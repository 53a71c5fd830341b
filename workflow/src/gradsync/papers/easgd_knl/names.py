"""What tables, figures and coverage of the training that this paper shows are about: methods, and errors to reach."""

from __future__ import annotations

FIGURES = (
    *("original_easgd", "async_sgd", "async_msgd", "hogwild_sgd"),
    *("async_easgd", "async_measgd", "hogwild_easgd", "sync_easgd3"),
)  # the methods of Fig. 6 and 8
MOMENTUM = ("async_msgd", "async_measgd")  # which share the others' rate divided by `SMALLER` (testbed.yaml)
SMALLER = 10
# Per data set, the test errors of levels 1 to 3, and the accuracy of Table 3
LEVELS = {"mnist": (0.05, 0.02, 0.012), "digits": (0.1, 0.05, 0.03)}
TARGETS = {"mnist": 0.988, "digits": 0.97}
EXCHANGES = (
    *("original_easgd", "async_easgd", "hogwild_easgd"),
    *("sync_easgd1", "sync_easgd2", "sync_easgd3", "knl_easgd"),
)  # the methods whose exchanges are counted
CHIP_PARTS = "chip_parts"  # the scheme of Fig. 12
MORE_MACHINES = "knl_easgd"  # of Fig. 13
ONE_WORKER = "single"  # of Section 7.2: SGD with momentum, if one worker runs it
TARGETS_OF_PARTS = {"cifar10": 0.625, "digits": 0.97}  # the accuracy of Fig. 12
