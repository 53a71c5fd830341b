"""The jobs that failed in a run, from the log that Snakemake 9 and its Slurm executor write."""

from __future__ import annotations

import re
from dataclasses import dataclass

BLOCK_ENDS = re.compile(
    r"^\[\w{3} |^(?:local)?(?:rule|checkpoint) \w+:$|^Finished job|^Trying to restart", re.MULTILINE
)


@dataclass(frozen=True)
class Failure:
    """A job that failed for good; what is not known is "". `refused` is what sbatch answered, `state` Slurm's word."""

    rule: str
    wildcards: str
    slurm_id: str
    state: str
    refused: str
    log: str
    slurm_log: str

    @property
    def job(self) -> str:
        """Rule and wildcards."""
        return f"{self.rule} {self.wildcards}" if self.wildcards else self.rule


def failures(text: str) -> list[Failure]:
    """Failed jobs in the order of their (last) failure. One that was tried again counts if its last try failed too."""
    wildcards = dict(_announced(text))
    last: dict[str, Failure] = {}
    for match in re.finditer(r"^Error in (?:group|rule) (\S+?):?$", text, re.MULTILINE):
        block = BLOCK_ENDS.split(text[match.end() :], maxsplit=1)[0]
        number = _field(block, "jobid")
        if re.search(rf"^Finished job(?:id:)? {number}\b", text[match.end() :], re.MULTILINE):
            continue
        last.pop(number, None)
        last[number] = _failure(match.group(1), wildcards.get(number, ""), block)
    return list(last.values())


def _announced(text: str) -> list[tuple[str, str]]:
    """Numbers and wildcards of the jobs that were started."""
    blocks = re.findall(r"^(?:local)?(?:rule|checkpoint) \w+:\n((?: {4}.*\n)+)", text, re.MULTILINE)
    return [(_field(block, "jobid"), _field(block, "wildcards")) for block in blocks]


def _failure(rule: str, wildcards: str, block: str) -> Failure:
    slurm_id = _field(block, "external_jobid")
    logs = [
        log
        for log in _field(block, "log").replace("(check log file(s) for error details)", "").strip().split(", ")
        if log
    ]
    captured = [log for log in logs if slurm_id and log.endswith(f"/{slurm_id}.log")]
    refused = re.search(r"SLURM sbatch failed\. The error message was '(.*?)'\.$", block, re.MULTILINE | re.DOTALL)
    return Failure(
        rule=rule,
        wildcards=wildcards,
        slurm_id=slurm_id,
        state=_search(r"SLURM status is: '(\w+)'", block),
        refused=". ".join(refused.group(1).replace("sbatch: error: ", "").splitlines()) if refused else "",
        log=next((log for log in logs if log not in captured), ""),
        slurm_log=captured[0] if captured else "",
    )


def _field(block: str, key: str) -> str:
    return _search(rf"^ {{4}}{key}: (.*)$", block)


def _search(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    return match.group(1).strip() if match else ""
