"""Figures of the toy paper."""

from matplotlib import pyplot as plt

from gradsync.papers.table import file, read


def transfer(settings, results):
    """Seconds by links."""
    frame = read(file(results, "toy", "transfer"), ["links", "seconds"])
    figure, axes = plt.subplots()
    axes.plot(frame.links, frame.seconds)
    return figure, frame


FIGURES = {"transfer": transfer}
