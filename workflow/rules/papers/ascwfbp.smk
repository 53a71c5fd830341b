# The ASC-WFBP paper. Its models are counted, not profiled: published totals give the scale.

ASC_COUNTED = [
    counted_file(model)
    for model in ("resnet152", "densenet201", "inceptionv4", "bert_base")
]

PAPERS["ascwfbp"] = Paper(
    inputs=[SETTINGS.asc_testbed],
    replayed=[SETTINGS.asc_testbed, *ASC_COUNTED],
    settings=None,
    tables={
        "table3": ASC_COUNTED,
        "timelines": [],
        "fig4a": [CONTENTION, *emulated("ascwfbp")],
        "fig4b": [CONTENTION, *emulated("ascwfbp")],
        "fig5": [CONTENTION, *emulated("ascwfbp")],
        "contention_points": [CONTENTION, *emulated("ascwfbp")],
        "constants": ASC_COUNTED,
        "table4": [*ASC_COUNTED, *emulated("ascwfbp"), *runs(launches("ascwfbp"))],
        "fig6": [table_file("ascwfbp", "table4")],
        "table5": [table_file("ascwfbp", "table4"), *ASC_COUNTED],
        "own_model": [table_file("ascwfbp", "table4")],
        "shared_link": [table_file("ascwfbp", "table4")],
        "emulated": emulated("ascwfbp"),
        "training": runs(launches("ascwfbp")),
        "slowdown": expand(
            f"{RESULTS}/profile/{{job}}/interference.json", job=profiled("ascwfbp")
        ),
    },
    figures={
        # drawn from examples, not from tables
        "fig1": [],
        "fig2": [],
        "fig3": [],
        "counterexample": [],
        "fig4a": ["contention_points", "fig4a"],
        "fig4b": ["contention_points", "fig4b"],
        "fig5": ["contention_points", "fig5"],
        "table4": ["table4"],
        "fig6": ["fig6"],
        "shared_link": ["shared_link"],
        "emulated": ["emulated"],
        "training": ["training"],
    },
)
