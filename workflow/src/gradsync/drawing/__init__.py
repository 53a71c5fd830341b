"""Style, panels and timelines. It and the `drawing` of a paper are the only users of matplotlib."""
