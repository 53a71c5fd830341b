"""Style, panels and timelines. This room and the `drawing` of a paper are the only users of matplotlib."""
