"""The report: static pages made from results that are there. Nothing is computed or measured for them.

`write.py` writes them with the templates of `reports/site/`; each other module collects what one of the pages shows.
"""
