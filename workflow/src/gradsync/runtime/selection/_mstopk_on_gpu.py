"""The exact top k on an NVIDIA GPU in one pass over memory: kernels of MSTopK in Triton, for 32-bit numbers.

A sample at scattered places gives a bound that k elements pass but for one vector in millions. One pass takes the keys
and places of what passes (the candidates), in order within each tile, and counts the keys in bins above the bound. The
bin of the k-th largest mostly holds few candidates; among these the exact threshold is searched for bit by bit. The
chosen candidates are then written in the order of their places, as many of those equal to the threshold as lack, from
the given start.

The host never waits for the GPU. Where the sample has missed (fewer than k pass, or so many that the candidates have no
room), the same kernels search all elements: the result never depends on the sample.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

SAMPLED = 8192  # elements
DEVIATIONS = 5  # by which more of the sample are taken than is to be expected
TILE = 4096  # elements of a program
BINS, SHIFT = 4096, 14  # a bin has 2**SHIFT keys: 512 bins are a factor of 2 in magnitude
NARROWED = 2048  # candidates that the last search has room for
SEARCHED, READ, WRITTEN = 2048, 8192, 128  # elements at a time
MOST_ELEMENTS = (1 << 31) - TILE
LEAST_ELEMENTS = 1 << 16  # of fewer, torch.topk is as fast
MOST_SELECTED = 1 << 17  # of more, one program reads too many candidates
ELEMENTS_PER_PLACE = 2  # the candidates have room for half of the elements

# Places of the workspace, 32-bit integers; what changes with the elements lies behind
BOUND, PASSING, ABOVE_BOUND, NARROW, EXACT, STORED = (tl.constexpr(place) for place in range(6))
HISTOGRAM = tl.constexpr(64)
NARROWED_AT = tl.constexpr(64 + BINS)
TILES_AT = tl.constexpr(64 + BINS + NARROWED)
KEY_BITS = tl.constexpr(31)
MASK = tl.constexpr(0x7FFFFFFF)


def serves(values: torch.Tensor, k: int) -> bool:
    """Whether these kernels select k of `values`, and fast."""
    elements = len(values)
    served = LEAST_ELEMENTS <= elements <= MOST_ELEMENTS and k <= min(MOST_SELECTED, elements // 16)
    return values.dtype == torch.float32 and served


def select(values: torch.Tensor, k: int, start: float) -> torch.Tensor:
    """Positions of the k largest magnitudes, ascending; of equal ones a run from `start` (0 to 1).  # (k,) int64"""
    bits = values.contiguous().view(torch.int32)
    elements = len(bits)
    tiles = triton.cdiv(elements, TILE)
    room = elements // ELEMENTS_PER_PLACE
    space = torch.empty(TILES_AT.value + 4 * tiles + 2 * room, dtype=torch.int32, device=bits.device)
    in_tiles = space[TILES_AT.value : TILES_AT.value + 2 * tiles].view(2, tiles)  # chosen for sure; equal to the k-th
    chosen = torch.empty(k, dtype=torch.int64, device=bits.device)
    place = _place(elements, k)
    start_bits = round(start * (1 << 53))  # a kernel gets a float in single precision
    with torch.cuda.device_of(bits):  # kernels go to the current device
        _bound[(1,)](bits, space, elements, place, SAMPLED, BINS, num_warps=16)
        _candidates[(tiles,)](bits, space, elements, tiles, room, TILE, BINS, SHIFT, num_warps=8)
        _threshold[(1,)](bits, space, elements, tiles, room, k, BINS, SHIFT, NARROWED, READ, SEARCHED, num_warps=16)
        _count[(tiles,)](bits, space, elements, tiles, room, TILE, WRITTEN, num_warps=1)
        totals = in_tiles.cumsum(1, dtype=torch.int32)
        _write[(tiles,)](bits, space, totals, chosen, elements, tiles, room, k, start_bits, TILE, WRITTEN, num_warps=1)
    return chosen


def _place(elements: int, k: int) -> int:
    """Of which place in the sample the bound is."""
    expected = SAMPLED * k / elements
    return min(SAMPLED, int(expected + DEVIATIONS * (expected**0.5 + 1)) + 1)


@triton.jit(do_not_specialize=["elements", "place"])
def _bound(bits, space, elements, place, SAMPLED: tl.constexpr, BINS: tl.constexpr):
    """One element of each stratum, at places that no pattern in the values follows: by a step of PCG's generator."""
    number = tl.arange(0, SAMPLED)
    stratum = elements // SAMPLED
    jitter = ((number * 747796405 + 289559509) >> 8) & 0x7FFFFF
    sample = tl.load(bits + number * stratum + jitter % stratum) & MASK
    bound = 0
    for bit in range(KEY_BITS):
        trial = bound | (1 << (30 - bit))
        bound = tl.where(tl.sum((sample >= trial).to(tl.int32)) >= place, trial, bound)
    tl.store(space + tl.arange(0, HISTOGRAM), 0)
    tl.store(space + HISTOGRAM + tl.arange(0, BINS), tl.zeros((BINS,), tl.int32))
    tl.debug_barrier()
    tl.store(space + BOUND, bound)


@triton.jit(do_not_specialize=["tiles", "room"])
def _candidates(bits, space, elements, tiles, room, TILE: tl.constexpr, BINS: tl.constexpr, SHIFT: tl.constexpr):
    """Take what passes the bound: of each tile where its candidates begin, and how many there are."""
    tile = tl.program_id(0)
    at = tile * TILE + tl.arange(0, TILE)
    bound = tl.load(space + BOUND)
    if (tile + 1) * TILE <= elements:
        key = tl.load(bits + at) & MASK
        passes = key >= bound
    else:
        key = tl.load(bits + at, mask=at < elements, other=0) & MASK
        passes = (at < elements) & (key >= bound)
    count = tl.sum(passes.to(tl.int32))
    starts = space + TILES_AT + 2 * tiles
    tl.store(starts + tiles + tile, count)
    if count > 0:
        above = passes & (key > bound)
        tl.atomic_add(space + ABOVE_BOUND, tl.sum(above.to(tl.int32)), sem="relaxed")
        first = tl.atomic_add(space + PASSING, count, sem="relaxed")
        tl.store(starts + tile, first)
        slot = first + tl.cumsum(passes.to(tl.int32), 0) - 1
        candidates = starts + 2 * tiles
        tl.store(candidates + slot, key, mask=passes & (slot < room))
        tl.store(candidates + room + slot, at, mask=passes & (slot < room))
        number = tl.minimum((key - bound) >> SHIFT, BINS - 1)
        tl.atomic_add(space + HISTOGRAM + number, 1, mask=above, sem="relaxed")


@triton.jit(do_not_specialize=["elements", "tiles", "room", "k"])
def _threshold(
    bits,
    space,
    elements,
    tiles,
    room,
    k,
    BINS: tl.constexpr,
    SHIFT: tl.constexpr,
    NARROWED: tl.constexpr,
    READ: tl.constexpr,
    SEARCHED: tl.constexpr,
):
    """The k-th largest key, by one program."""
    passing, above, bound = tl.load(space + PASSING), tl.load(space + ABOVE_BOUND), tl.load(space + BOUND)
    stored = (passing >= k) & (passing <= room)
    tl.store(space + STORED, stored.to(tl.int32))
    candidates = space + TILES_AT + 4 * tiles
    if (passing >= k) & (above < k):  # so many equal the bound that it is the threshold
        tl.store(space + EXACT, bound)
    else:
        searched, many, rank = bits, elements, k
        first_bit, base = 30, 0
        if stored:
            searched, many = candidates, passing
            order = tl.arange(0, BINS)
            counts = tl.load(space + HISTOGRAM + BINS - 1 - order)  # from the bin of the largest on
            place = tl.sum((tl.cumsum(counts, 0) < k).to(tl.int32))
            inside = tl.sum(tl.where(order == place, counts, 0))
            if (inside <= NARROWED) & (place > 0):  # the bin of the largest has no upper end
                number = BINS - 1 - place
                begin = 0
                while begin < passing:
                    at = begin + tl.arange(0, READ)
                    key = tl.load(candidates + at, mask=at < passing, other=0)
                    offset = key - bound
                    found = (at < passing) & (offset > 0) & ((offset >> SHIFT) == number)
                    slot = tl.atomic_add(space + NARROW + tl.zeros((READ,), tl.int32), 1, mask=found, sem="relaxed")
                    tl.store(space + NARROWED_AT + slot, offset - (number << SHIFT), mask=found)
                    begin += READ
                tl.debug_barrier()
                searched, many, rank = space + NARROWED_AT, inside, k - tl.sum(tl.where(order < place, counts, 0))
                first_bit, base = SHIFT - 1, bound + (number << SHIFT)
        exact, bit = 0, first_bit
        while bit >= 0:
            trial = exact | (1 << bit)
            not_less = tl.zeros((SEARCHED,), tl.int32)
            begin = 0
            while begin < many:
                at = begin + tl.arange(0, SEARCHED)
                key = tl.load(searched + at, mask=at < many, other=0) & MASK
                not_less += ((at < many) & (key >= trial)).to(tl.int32)
                begin += SEARCHED
            exact = tl.where(tl.sum(not_less) >= rank, trial, exact)
            bit -= 1
        tl.store(space + EXACT, base + exact)


@triton.jit
def _list(bits, space, elements, tiles, room, tile, TILE: tl.constexpr):
    """What a tile chooses from, in order: pointers to keys and places, how many; candidates, or all its elements."""
    starts = space + TILES_AT + 2 * tiles
    stored = tl.load(space + STORED) > 0
    many = tl.load(starts + tiles + tile)
    first = tl.load(starts + tile, mask=many > 0, other=0)
    keys = starts + 2 * tiles + first
    if not stored:
        keys = bits + tile * TILE
        many = tl.minimum(TILE, elements - tile * TILE)
    return keys, starts + 2 * tiles + room + first, many, stored


@triton.jit(do_not_specialize=["elements", "tiles", "room"])
def _count(bits, space, elements, tiles, room, TILE: tl.constexpr, WRITTEN: tl.constexpr):
    """Of each tile, how many keys lie above the threshold, and how many equal it."""
    tile = tl.program_id(0)
    exact = tl.load(space + EXACT)
    keys, _, many, _ = _list(bits, space, elements, tiles, room, tile, TILE)
    above = tl.zeros((WRITTEN,), tl.int32)
    equal = tl.zeros((WRITTEN,), tl.int32)
    begin = 0
    while begin < many:
        at = begin + tl.arange(0, WRITTEN)
        key = tl.load(keys + at, mask=at < many, other=0) & MASK
        above += ((at < many) & (key > exact)).to(tl.int32)
        equal += ((at < many) & (key == exact)).to(tl.int32)
        begin += WRITTEN
    tl.store(space + TILES_AT + tile, tl.sum(above))
    tl.store(space + TILES_AT + tiles + tile, tl.sum(equal))


@triton.jit(do_not_specialize=["elements", "tiles", "room", "k", "start"])
def _write(bits, space, totals, chosen, elements, tiles, room, k, start, TILE: tl.constexpr, WRITTEN: tl.constexpr):
    """Write the places of what is chosen in a tile behind those of the tiles before it; `start` in units of 2**-53."""
    tile = tl.program_id(0)
    exact = tl.load(space + EXACT)
    lacking = k - tl.load(totals + tiles - 1)
    choices = (tl.load(totals + 2 * tiles - 1) - lacking + 1).to(tl.float64)
    run = (start.to(tl.float64) * (1.0 / (1 << 53)) * choices).to(tl.int32)  # the equal one that it begins behind
    above_before = tl.load(totals + tile) - tl.load(space + TILES_AT + tile)
    equal_before = tl.load(totals + tiles + tile) - tl.load(space + TILES_AT + tiles + tile)
    keys, places, many, stored = _list(bits, space, elements, tiles, room, tile, TILE)
    slot = above_before + tl.minimum(tl.maximum(equal_before - run, 0), lacking)
    begin = 0
    while begin < many:
        at = begin + tl.arange(0, WRITTEN)
        key = tl.load(keys + at, mask=at < many, other=0) & MASK
        place = tl.load(places + at, mask=(at < many) & stored, other=0)
        place = tl.where(stored, place, tile * TILE + at)
        equal = ((at < many) & (key == exact)).to(tl.int32)
        number = equal_before + tl.cumsum(equal, 0)  # from 1
        taken = (at < many) & ((key > exact) | ((equal > 0) & (number > run) & (number <= run + lacking)))
        tl.store(chosen + slot + tl.cumsum(taken.to(tl.int32), 0) - 1, place.to(tl.int64), mask=taken)
        slot += tl.sum(taken.to(tl.int32))
        equal_before += tl.sum(equal)
        begin += WRITTEN
