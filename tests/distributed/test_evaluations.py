"""Test samples are dealt to the ranks: together they find what rank 0 finds of its model alone."""


def test_ranks_find_together_what_rank_0_finds_alone(on_ranks):
    of_ranks = on_ranks("evaluated", 3)
    for name, (dealt, alone) in of_ranks[0].items():
        assert dealt == alone, name
    assert all(ran["all"][0].accuracy == 0.5 for ran in of_ranks)  # each rank's own statistics would give another one
    assert 0 < of_ranks[0]["translations"][0].bleu[0] < 100
    assert of_ranks[1]["translations"][0].bleu is None
