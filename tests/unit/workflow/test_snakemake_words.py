"""Words of `snakemake`: which it takes for configurations, and what is refused before it reads them."""

from __future__ import annotations

import pytest

from gradsync.workflow.snakemake_words import configurations, refuse


@pytest.mark.parametrize(
    ("words", "files"),
    [
        ("--cores 2", []),
        ("-n --configfile a.yaml", ["a.yaml"]),
        ("--configfile=a.yaml results/x", ["a.yaml"]),
        ("results/x --configfile a.yaml --cores 2", ["a.yaml"]),
        ("--configfiles a.yaml results/x -n", ["a.yaml", "results/x"]),
        ("--configf a.yaml -- results/x", ["a.yaml"]),
        ("--configfile a.yaml --configfile b.yaml", ["b.yaml"]),
        ("--config a=b -n", []),
        ("-- --configfile a.yaml", []),
    ],
)
def test_words_are_read_as_snakemake_reads_them(words, files):
    assert configurations(words.split()) == files


def test_the_parser_of_snakemake_agrees():
    from snakemake.cli import get_argument_parser

    words = ["results/x", "--configfiles", "a.yaml", "b.yaml", "--cores", "2"]
    parsed = get_argument_parser().parse_args(words)
    assert [str(file) for file in parsed.configfile] == configurations(words)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("--configfile config/quick.yaml results/x", "write targets before it"),
        ("--configfile nosuch.yaml", "does not exist"),
        ("--configfile config/schemes.yaml", "config/schemes.yaml: "),
        ("-d elsewhere --configfile pyproject.toml", "not YAML"),
    ],
)
def test_what_snakemake_would_stumble_over_ends_in_one_line(words, wanted, capsys):
    with pytest.raises(SystemExit) as ended:
        refuse(words.split())
    message = capsys.readouterr().err
    assert ended.value.code == 2
    assert wanted in message
    assert message.count("\n") == 1


def test_what_is_right_goes_on():
    refuse(["results/x", "--configfile", "config/quick.yaml", "--cores", "2"])
