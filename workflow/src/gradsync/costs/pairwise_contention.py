"""Contention of two all-reduces in the ASC-WFBP paper (Eq. 7-13): a constant factor gamma on b, a penalty by pairs.

This is that paper's own model, kept to plan as it plans and to show where it fails; `contention.py` says what messages
under contention really cost. a in seconds, b in seconds per byte, starts in seconds, sizes in bytes.

Differs from the paper:
- Eq. 12 holds only while the first all-reduce is under way; outside, Algorithm 1 lets the penalty turn negative
  (ASC-E10). Here the bytes that overlap lie between 0 and those of the first.
- Eq. 12 lets the whole rest of the first overlap with the second, however short the second is, and takes start-up for
  transfer (ASC-E11). Corrected, no more bytes overlap than the second has.
- Eq. 11 slows both of the two, Algorithm 1 only the later one (ASC-E12): a planner adds `penalty` to the end of both.
- gamma of about 1.5 with a b that is the full link (1.7e-9 s/B is 2 x 8 / 9.43e9) lets two large all-reduces exceed
  that link (ASC-E32): `exceeds_link_from` says from where on. The paper's own text allows gamma up to 2 only.
"""

from __future__ import annotations

from math import inf

from gradsync.errors import InputError


def refuse_gamma(gamma: float, lanes: int) -> None:
    """Raises InputError for a factor of no link: below 1 contention makes faster, above `lanes` turns are better.

    Only for a gamma that somebody chooses; a measured one is what it is (`contention.py`).
    """
    if lanes < 1:
        raise InputError(f"gamma {gamma:g} for {lanes} lanes: at least 1 lane")
    if not 1 <= gamma <= lanes:
        why = "company would make a message faster" if gamma < 1 else f"{lanes} messages in turn would take less"
        if gamma != gamma:
            why = "it is no number"
        raise InputError(f"gamma {gamma:g}: must be between 1 and the number of lanes, {lanes}: {why}")


def throughput_one(m: float, a: float, b: float) -> float:
    """Eq. 7: T1 = m / (a + b m), bytes per second."""
    return m / (a + b * m)


def throughput_two(m: float, a: float, b: float, gamma: float) -> float:
    """Eq. 9: T2 = 2 m / (a + gamma b m), bytes per second of two that start at once."""
    return 2 * m / (a + gamma * b * m)


def penalty_bytes(
    bytes_first: float,
    start_first: float,
    start_second: float,
    bytes_second: float,
    a: float,
    b: float,
    corrected: bool = True,
) -> float:
    """Eq. 12: bytes of the first that are still to go when the second starts; `corrected`: no more than the second has.

    0 if the first is over by then.
    """
    alone = a + b * bytes_first
    passed = (start_second - start_first) / alone if alone > 0 else inf
    # m = m1 (1 - (tau2 - tau1) / (a + b m1))
    rest = min(max(bytes_first * (1 - passed), 0.0), bytes_first)
    return min(rest, bytes_second) if corrected else rest


def penalty(overlapped: float, b: float, gamma: float) -> float:
    """Eq. 11 and 13: (gamma - 1) b m, seconds that each of the two takes longer for so many overlapped bytes."""
    return (gamma - 1) * b * overlapped


def exceeds_link_from(a: float, b: float, gamma: float, link_bytes_per_second: float) -> float:
    """Bytes from which on T2 (Eq. 9) is more than the link carries; infinite if it never is.

    `link_bytes_per_second` counts bytes that are all-reduced, as T1 and T2 do: the rate of the link over the 2 (P-1)/P
    bytes that a ring sends for each (2 if (P-1)/P is dropped as in the paper, so 9.43e9 bit/s are 1/b).
    """
    # 2 m / (a + gamma b m) > B  <=>  m (2 - gamma b B) > a B
    room = 2 - gamma * b * link_bytes_per_second
    return a * link_bytes_per_second / room if room > 0 else inf
