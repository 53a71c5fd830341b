# The MG-WFBP paper.

PAPERS["mgwfbp"] = Paper(
    inputs=[SETTINGS.cluster],
    replayed=[SETTINGS.cluster, RESNET50],
    settings=SETTINGS.figure9,
    tables={
        "table2": [],
        "timelines": [],
        "fig5a": [GOOGLENET, RESNET50],
        "fig5a_tensors": [GOOGLENET, RESNET50],
        "fig5b": [*LOGGED, NETWORK, *emulated("mgwfbp")],
        "fig5b_points": [*LOGGED, NETWORK, *emulated("mgwfbp")],
        "fig6": [*LOGGED, *runs(launches("mgwfbp", "googlenet")), *emulated("mgwfbp")],
        "fig6b": runs(launches("mgwfbp", "googlenet")),
        "fig7": [
            *LOGGED,
            RESNET50,
            *runs(launches("mgwfbp", "resnet50")),
            *emulated("mgwfbp"),
        ],
        "fig7b": runs(launches("mgwfbp", "resnet50")),
        "fig8": [table_file("mgwfbp", "fig6"), table_file("mgwfbp", "fig7")],
        "fig9a": [table_file("mgwfbp", "gap")],
        "fig9b": [table_file("mgwfbp", "gap")],
        "gap": [*LOGGED, RESNET50],
        "emulated": emulated("mgwfbp"),
        "training": runs(launches("mgwfbp")),
        "slowdown": expand(
            f"{RESULTS}/profile/{{job}}/interference.json", job=profiled("mgwfbp")
        ),
    },
    figures={
        # drawn from examples, not from tables
        "fig1": [],
        "fig2": [],
        "fig3": [],
        "fig4": [],
        "counterexample": [],
        "fig5a": ["fig5a", "fig5a_tensors"],
        "fig5b": ["fig5b", "fig5b_points"],
        "fig6": ["fig6", "fig6b"],
        "fig7": ["fig7", "fig7b"],
        "fig8": ["fig8"],
        "fig9a": ["fig9a"],
        "fig9b": ["fig9b"],
        "gap": ["gap"],
        "emulated": ["emulated"],
        "training": ["training"],
    },
)
