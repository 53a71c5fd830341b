"""Tables, figures. The only user of matplotlib."""
