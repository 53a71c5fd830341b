# The BML paper.

PAPERS["bml_bcube"] = Paper(
    inputs=[SETTINGS.bml_testbed],
    replayed=[SETTINGS.bml_testbed, counted_file("lenet5"), counted_file("vgg19")],
    settings=None,
    tables={
        "fig4": ["config/papers/bml_bcube_fig4.csv"],
        "fig4_steps": [],
        "fig5": [],
        "switches": [],
        "fig6": [
            counted_file("lenet5"),
            *runs(launches("bml_bcube", "lenet5")),
            *emulated("bml_bcube"),
        ],
        "fig7": [
            counted_file("vgg19"),
            *runs(launches("bml_bcube", "vgg19", "vgg19_eighth")),
            *emulated("bml_bcube"),
        ],
        "emulated": emulated("bml_bcube"),
        "training": runs(launches("bml_bcube")),
    },
    figures={
        "fig4": ["fig4", "fig4_steps"],
        "fig5": ["fig5"],
        "fig6": ["fig6"],
        "fig7": ["fig7"],
        "emulated": ["emulated"],
        "training": ["training"],
    },
)
