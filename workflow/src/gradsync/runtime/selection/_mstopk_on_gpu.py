"""The exact top k on an NVIDIA GPU in one pass over memory: kernels of MSTopK in Triton, for 32-bit numbers.

A sample at scattered places gives a bound that k elements pass but for one vector in millions. One pass takes the
largest key of each group of 8 elements, and lists the groups that hold a candidate (an element that passes). Mostly
these alone are read again. The candidates' keys are counted in bins above the bound. Mostly few lie in the bin of the
k-th largest, and among them the exact threshold is searched for bit by bit. The chosen elements are then written in the
order of their places, as many of those equal to the threshold as lack, from the given start.

The host never waits for the GPU: what takes one program alone is done by the last program of a kernel to end. If the
sample has missed (fewer than k pass), that program searches all elements, some 0.02 us per element (estimated): the
result never depends on the sample.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

SAMPLED = tl.constexpr(8192)  # elements
DEVIATIONS = 5  # by which more of the sample are taken than is to be expected
TILE = tl.constexpr(8192)  # elements of a program
GROUP = tl.constexpr(8)  # elements
GROUPS = tl.constexpr(TILE.value // GROUP.value)  # of a tile
BINS = tl.constexpr(4096)
SCATTER = tl.constexpr(1237)  # bins lie as far apart in memory: those next to the bound are counted most
ROOM = tl.constexpr(8)  # the bin of the k-th largest has room for an eighth of the elements
LISTED, COUNTED, WRITTEN = (tl.constexpr(elements) for elements in (256, 256, 128))  # of listed groups, at a time
READ = tl.constexpr(1024)  # elements or tiles at a time, by one program
MOST_ELEMENTS = (1 << 31) - TILE.value
LEAST_ELEMENTS = 1 << 16  # of fewer, torch.topk is as fast

# Places of the workspace, 32-bit integers; behind them lies what grows with the elements
BOUND, WIDTH, EQUAL_TO_BOUND, ENDED_LISTS, ENDED_COUNTS = (tl.constexpr(place) for place in range(5))
BASE, BITS, RANK, EVERY, IN_BIN, EXACT, LACKING, RUN = (tl.constexpr(place) for place in range(5, 13))
HISTOGRAM = tl.constexpr(64)
OF_TILES = tl.constexpr(HISTOGRAM.value + BINS.value)
GROUPS_LISTED, ABOVE, EQUAL, ABOVE_BEFORE, EQUAL_BEFORE, ROWS = (tl.constexpr(row) for row in range(6))  # per tile
KEY_BITS = tl.constexpr(31)
MASK = tl.constexpr(0x7FFFFFFF)
HALF = tl.constexpr(27)  # bits: a kernel gets a float in single precision, so a start comes as two integers

_compiled: dict[tuple[Any, int, bool], Any] = {}  # by kernel, GPU and alignment


def serves(values: torch.Tensor, k: int) -> bool:
    """Whether these kernels select k of `values`, mostly faster than torch.topk."""
    elements = len(values)
    return values.dtype == torch.float32 and LEAST_ELEMENTS <= elements <= MOST_ELEMENTS and k <= elements // 16


def select(values: torch.Tensor, k: int, start: float) -> torch.Tensor:
    """Positions of the k largest magnitudes, ascending; of equal ones a run from 0 <= `start` < 1.  # (k,) int64"""
    bits = values.contiguous().view(torch.int32)
    elements = len(bits)
    tiles = -(-elements // TILE.value)
    places = OF_TILES.value + tiles * (ROWS.value + GROUPS.value) + 2 * (elements // ROOM.value)
    space = torch.empty(places, dtype=torch.int32, device=bits.device)
    chosen = torch.empty(k, dtype=torch.int64, device=bits.device)
    halves = divmod(round(start * (1 << 53)), 1 << HALF.value)
    with torch.cuda.device_of(bits):  # kernels go to the current device
        _launch(_bound, 1, 8, bits, space, elements, _place(elements, k))
        _launch(_list, tiles, 8, bits, space, elements, k)
        _launch(_count, tiles, 4, bits, space, elements, k, *halves)
        _launch(_write, tiles, 1, bits, space, chosen, elements)
    return chosen


def _launch(kernel: Any, programs: int, warps: int, bits: torch.Tensor, *others: Any) -> None:
    """Launch a kernel; from the second time on without Triton's search for its code, which takes longer."""
    key = kernel, bits.device.index, bits.data_ptr() % 16 == 0
    if (compiled := _compiled.get(key)) is None:
        _compiled[key] = kernel[(programs,)](bits, *others, num_warps=warps)
    else:
        compiled[programs, 1, 1](bits, *others)


def _place(elements: int, k: int) -> int:
    """Of which place in the sample the bound is, even if all that is chosen lies where the sample is taken from."""
    expected = k / (elements // SAMPLED.value)
    return min(SAMPLED.value, int(expected + DEVIATIONS * (expected**0.5 + 1)) + 1)


@triton.jit(do_not_specialize=["elements", "place"])
def _bound(bits, space, elements, place):
    """The bound and the width of bins, from one element per stratum; and a cleared workspace.

    Elements lie at irregular places of their strata, by a step of PCG's generator. A rest belongs to no stratum.
    """
    number = tl.arange(0, SAMPLED)
    stratum = elements // SAMPLED
    jitter = (((number.to(tl.int64) * 747796405 + 289559509) >> 8) & 0x7FFFFF).to(tl.int32)
    sample = tl.load(bits + number * stratum + jitter % stratum) & MASK
    bound = 0
    for bit in range(KEY_BITS):
        trial = bound | (1 << (30 - bit))
        bound = tl.where(tl.sum((sample >= trial).to(tl.int32)) >= place, trial, bound)
    bound = tl.maximum(bound, 1)  # zeros are no candidates
    spread = tl.maximum(tl.max(sample) - bound, 0)
    # a quarter of the bins or more, and no more than half, reach to the largest of the sample
    width = tl.sum(((spread >> tl.arange(0, 32)) >= BINS // 2).to(tl.int32))
    tl.store(space + tl.arange(0, HISTOGRAM), 0)
    tl.store(space + HISTOGRAM + tl.arange(0, BINS), tl.zeros((BINS,), tl.int32))
    tl.debug_barrier()
    tl.store(space + BOUND, bound)
    tl.store(space + WIDTH, width)


@triton.jit(do_not_specialize=["elements", "k"])
def _list(bits, space, elements, k):
    """List the groups that hold candidates, and count these in bins; the last program finds the bin of the k-th."""
    tile, tiles = tl.program_id(0), tl.num_programs(0)
    bound, width = tl.load(space + BOUND), tl.load(space + WIDTH)
    number = tl.arange(0, GROUPS)
    at = tile * TILE + number[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    if (tile + 1) * TILE <= elements:
        largest = tl.max(tl.load(bits + at) & MASK, 1)
    else:
        largest = tl.max(tl.load(bits + at, mask=at < elements, other=0) & MASK, 1)
    listed = (largest >= bound).to(tl.int32)
    many = tl.sum(listed)
    rows, lists = _parts(space)
    tl.store(rows + GROUPS_LISTED * tiles + tile, many)
    if many > 0:
        tl.store(lists + tile * GROUPS + tl.cumsum(listed, 0) - 1, number, mask=listed > 0)
        tl.debug_barrier()
        equal = tl.zeros((LISTED,), tl.int32)
        begin = 0
        while begin < many:
            key, _, there = _listed(bits, lists, elements, tile, begin, many, 0, LISTED)
            over = key - bound
            of_bin = tl.minimum(tl.maximum(over - 1, 0) >> width, BINS - 1)
            tl.atomic_add(space + HISTOGRAM + of_bin * SCATTER % BINS, 1, mask=there & (over > 0), sem="relaxed")
            equal += (there & (over == 0)).to(tl.int32)
            begin += LISTED // GROUP
        in_tile = tl.sum(equal)
        if in_tile > 0:
            tl.atomic_add(space + EQUAL_TO_BOUND, in_tile, sem="relaxed")
    tl.debug_barrier()
    if tl.atomic_add(space + ENDED_LISTS, 1, sem="acq_rel") == tiles - 1:
        _find_bin(bits, space, elements, k, bound, width)


@triton.jit
def _parts(space):
    """Pointers to the rows of numbers per tile, and to the lists of groups."""
    rows = space + OF_TILES
    return rows, rows + ROWS * tl.num_programs(0)


@triton.jit
def _listed(bits, lists, elements, tile, begin, many, every, ELEMENTS: tl.constexpr):
    """Keys and places of the next elements of a tile's listed groups, or of every group, and which are there."""
    lane = tl.arange(0, ELEMENTS)
    entry = begin + lane // GROUP
    group = entry
    if every == 0:
        group = tl.load(lists + tile * GROUPS + entry, mask=entry < many, other=0)
    place = tile * TILE + group * GROUP + lane % GROUP
    there = (entry < many) & (place < elements)
    return tl.load(bits + place, mask=there, other=0) & MASK, place, there


@triton.jit
def _find_bin(bits, space, elements, k, bound, width):
    """The threshold is, of the 2**BITS keys from BASE on, the one of rank RANK; if BITS is 0, it is BASE."""
    order = tl.arange(0, BINS)
    place = (BINS - 1 - order) * SCATTER % BINS
    counts = tl.load(space + HISTOGRAM + place, cache_modifier=".cg")  # from the bin of the largest on
    above = tl.sum(counts)
    passing = above + tl.load(space + EQUAL_TO_BOUND, cache_modifier=".cg")
    found = tl.sum((tl.cumsum(counts, 0) < k).to(tl.int32))
    base, left, every = bound, 0, 0  # as if so many equalled the bound that it is the threshold
    if above >= k:
        base = bound + 1 + ((BINS - 1 - found) << width)
        left = tl.where(found > 0, width, KEY_BITS)  # the bin of the largest has no upper end
        tl.store(space + RANK, k - tl.sum(tl.where(order < found, counts, 0)))
        if tl.sum(tl.where(order == found, counts, 0)) > elements // ROOM:
            base, left = _searched(bits, elements, k, 31), 0  # KEY_BITS, but Triton's interpreter shifts by no constant
    if passing < k:
        every = 1
        base = 0
        if bound > 1:
            base = _searched(bits, elements, k, 31)
    tl.store(space + BASE, base)
    tl.store(space + BITS, left)
    tl.store(space + EVERY, every)


@triton.jit
def _searched(keys, many, rank, width):
    """The key of a rank among many keys of `width` bits."""
    found = 0
    for step in range(width):
        trial = found | (1 << (width - 1 - step))
        not_less = tl.zeros((READ,), tl.int32)
        begin = 0
        while begin < many:
            at = begin + tl.arange(0, READ)
            key = tl.load(keys + at, mask=at < many, other=0, cache_modifier=".cg") & MASK
            not_less += ((at < many) & (key >= trial)).to(tl.int32)
            begin += READ
        found = tl.where(tl.sum(not_less) >= rank, trial, found)
    return found


@triton.jit(do_not_specialize=["elements", "k", "start", "start_low"])
def _count(bits, space, elements, k, start, start_low):
    """Count what lies above the bin of the k-th largest, and take what lies in it; the last program orders tiles.

    If the threshold is known, count what lies above it, and what equals it.
    """
    tile, tiles = tl.program_id(0), tl.num_programs(0)
    base, width, every = tl.load(space + BASE), tl.load(space + BITS), tl.load(space + EVERY)
    rows, lists = _parts(space)
    in_bin = lists + GROUPS * tiles  # how far each lies above the base; behind them the tiles that they are of
    many = _many(rows, elements, tile, every)
    found = tl.zeros((COUNTED,), tl.int32)  # above; equal 16 bits higher
    begin = 0
    while begin < many:
        key, _, there = _listed(bits, lists, elements, tile, begin, many, every, COUNTED)
        over = (key - base) >> width
        inside = there & (over == 0)
        found += (there & (over > 0)).to(tl.int32)
        if width == 0:
            found += inside.to(tl.int32) << 16
        else:
            slot = tl.atomic_add(space + IN_BIN + tl.zeros((COUNTED,), tl.int32), 1, mask=inside, sem="relaxed")
            tl.store(in_bin + slot, key - base, mask=inside)
            tl.store(in_bin + elements // ROOM + slot, tl.zeros((COUNTED,), tl.int32) + tile, mask=inside)
        begin += COUNTED // GROUP
    counts = tl.sum(found)
    tl.store(rows + ABOVE * tiles + tile, counts & 0xFFFF)
    tl.store(rows + EQUAL * tiles + tile, counts >> 16)
    tl.debug_barrier()
    if tl.atomic_add(space + ENDED_COUNTS, 1, sem="acq_rel") == tiles - 1:
        exact = base
        if width > 0:
            exact += _divide(space, rows, in_bin, elements, width)
        _order(space, rows, k, exact, start, start_low)


@triton.jit
def _many(rows, elements, tile, every):
    """How many groups of a tile are read again."""
    many = tl.load(rows + GROUPS_LISTED * tl.num_programs(0) + tile)
    if every > 0:
        many = tl.cdiv(tl.minimum(TILE, elements - tile * TILE), GROUP)
    return many


@triton.jit
def _divide(space, rows, in_bin, elements, width):
    """How far the k-th largest lies above the base. What lies in its bin is counted in its tile: above it, or equal."""
    tiles = tl.num_programs(0)
    many, rank = tl.load(space + IN_BIN, cache_modifier=".cg"), tl.load(space + RANK)
    exact = _searched(in_bin, many, rank, width)
    begin = 0
    while begin < many:
        at = begin + tl.arange(0, READ)
        key = tl.load(in_bin + at, mask=at < many, other=0, cache_modifier=".cg")
        tile = tl.load(in_bin + elements // ROOM + at, mask=at < many, other=0, cache_modifier=".cg")
        tl.atomic_add(rows + ABOVE * tiles + tile, 1, mask=(at < many) & (key > exact), sem="relaxed")
        tl.atomic_add(rows + EQUAL * tiles + tile, 1, mask=(at < many) & (key == exact), sem="relaxed")
        begin += READ
    tl.debug_barrier()
    return exact


@triton.jit
def _order(space, rows, k, exact, start, start_low):
    """How many above the threshold, and how many equal to it, lie before each tile.

    A start is in units of 2**-53; `start` has its higher bits.
    """
    tiles = tl.num_programs(0)
    above, equal, begin = 0, 0, 0
    while begin < tiles:
        at = begin + tl.arange(0, READ)
        of_above = tl.load(rows + ABOVE * tiles + at, mask=at < tiles, other=0, cache_modifier=".cg")
        of_equal = tl.load(rows + EQUAL * tiles + at, mask=at < tiles, other=0, cache_modifier=".cg")
        tl.store(rows + ABOVE_BEFORE * tiles + at, above + tl.cumsum(of_above, 0) - of_above, mask=at < tiles)
        tl.store(rows + EQUAL_BEFORE * tiles + at, equal + tl.cumsum(of_equal, 0) - of_equal, mask=at < tiles)
        above += tl.sum(of_above)
        equal += tl.sum(of_equal)
        begin += READ
    lacking = k - above
    begins = ((start.to(tl.int64) << HALF) + start_low).to(tl.float64) * (1.0 / (1 << 53))
    run = begins * (equal - lacking + 1).to(tl.float64)
    tl.store(space + EXACT, exact)
    tl.store(space + LACKING, lacking)
    tl.store(space + RUN, run.to(tl.int32))  # so many equal ones lie before the run


@triton.jit(do_not_specialize=["elements"])
def _write(bits, space, chosen, elements):
    """Write the places of what is chosen in a tile behind those of the tiles before it."""
    tile, tiles = tl.program_id(0), tl.num_programs(0)
    exact, lacking, run = tl.load(space + EXACT), tl.load(space + LACKING), tl.load(space + RUN)
    every = tl.load(space + EVERY)
    rows, lists = _parts(space)
    equal_before = tl.load(rows + EQUAL_BEFORE * tiles + tile)
    slot = tl.load(rows + ABOVE_BEFORE * tiles + tile) + tl.minimum(tl.maximum(equal_before - run, 0), lacking)
    many = _many(rows, elements, tile, every)
    begin = 0
    while begin < many:
        key, place, there = _listed(bits, lists, elements, tile, begin, many, every, WRITTEN)
        equal = (there & (key == exact)).to(tl.int32)
        number = equal_before + tl.cumsum(equal, 0)  # from 1
        taken = there & ((key > exact) | ((equal > 0) & (number > run) & (number <= run + lacking)))
        tl.store(chosen + slot + tl.cumsum(taken.to(tl.int32), 0) - 1, place.to(tl.int64), mask=taken)
        slot += tl.sum(taken.to(tl.int32))
        equal_before += tl.sum(equal)
        begin += WRITTEN // GROUP
