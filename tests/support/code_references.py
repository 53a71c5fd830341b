"""References of the kernels that encode and decode gradients, element by element."""

from __future__ import annotations

import math

import numpy as np

from gradsync import compressors

N = 23
Arrays = list[np.ndarray]
Case = tuple[Arrays, Arrays, dict[str, float], Arrays]  # reads, writes before, arguments, writes after


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).normal(size=shape)


def encode(compressor: str) -> list[Case]:
    gradient, residual, k, turn = drawn(N), drawn(N, seed=1), 5, {"turn": 7}
    select = compressors.get(compressor).select
    cases: list[Case] = []
    for old in ([residual], []):  # with error feedback, and without
        whole = np.array([g + r for g, r in zip(gradient, old[0] if old else np.zeros(N), strict=True)])
        chosen = [int(position) for position in select(whole, k, **turn)]
        assert len({*chosen}) == k
        left = [np.array([0.0 if i in chosen else whole[i] for i in range(N)])] if old else []
        before = [np.zeros(k), np.zeros(k, np.int64), *old]
        cases.append(([gradient], before, turn, [np.array([whole[i] for i in chosen]), np.array(chosen), *left]))
    return cases


def encode_exact_topk() -> list[Case]:
    ties = np.array([2.0, -3.0, 3.0, 0.0, -2.0, 2.0])  # of equal magnitudes the first are taken
    kept = np.array([0.0, 0.0, 0.0, 0.0, -2.0, 2.0])
    three = [np.array([2.0, -3.0, 3.0]), np.array([0, 1, 2]), kept]
    whole = drawn(N)
    largest = sorted(sorted(range(N), key=lambda i: (-abs(whole[i]), i))[:4])
    four = [whole[largest], np.array(largest)]
    return [
        *encode("exact_topk"),
        ([ties], [np.zeros(3), np.zeros(3, np.int64), np.zeros(6)], {"turn": 0}, three),
        ([whole], [np.zeros(4), np.zeros(4, np.int64)], {"turn": 0}, four),
    ]


def in_bytes(symbols: list[int], bits: int, length: int) -> np.ndarray:
    """Symbols of so many bits, the first in the lowest ones."""
    whole = sum(symbol << (bits * place) for place, symbol in enumerate(symbols))
    return np.frombuffer(whole.to_bytes(length, "little"), np.uint8)


def encode_sign() -> list[Case]:
    gradient, residual = drawn(N), drawn(N, seed=1)
    cases: list[Case] = []
    for old in ([residual], []):  # with error feedback, and without
        whole = [g + r for g, r in zip(gradient, old[0] if old else np.zeros(N), strict=True)]
        mean = sum(map(abs, whole)) / N
        left = [np.array([v - math.copysign(mean, v) for v in whole])] if old else []
        code = [in_bytes([int(v < 0) for v in whole], 1, 3), np.array([mean])]
        cases.append(([gradient], [np.full(3, 9, np.uint8), np.zeros(1), *old], {}, [*code, *left]))
    return cases


def decode_sign() -> list[Case]:
    codes = [[int(v < 0) for v in drawn(N, seed=seed)] for seed in (1, 2)]
    packed = np.concatenate([in_bytes(code, 1, 3) for code in codes])
    expected = np.array([0.5 * (-1) ** one + 2.0 * (-1) ** other for one, other in zip(*codes, strict=True)])
    return [([packed, np.array([0.5, 2.0])], [drawn(N)], {"longest": N}, [expected])]


QSGD = {"levels": 5, "bucket": 8}


def encode_qsgd() -> list[Case]:
    """Three buckets; the draws are those of the key (seed, rank, turn, first element)."""
    gradient, residual = drawn(N), drawn(N, seed=1)
    draws = np.random.default_rng((3, 2, 7, 40)).random(N, np.float32)
    cases: list[Case] = []
    for old in ([residual], []):
        whole = [g + r for g, r in zip(gradient, old[0] if old else np.zeros(N), strict=True)]
        norms = [math.sqrt(sum(v * v for v in whole[low : low + 8])) for low in (0, 8, 16)]
        exact = [5 * abs(v) / norms[i // 8] for i, v in enumerate(whole)]
        levels = [math.floor(x) + (u < x - math.floor(x)) for x, u in zip(exact, draws, strict=True)]
        signed = [int(math.copysign(level, v)) for level, v in zip(levels, whole, strict=True)]
        sent = [norms[i // 8] * level / 5 for i, level in enumerate(signed)]
        left = [np.array(whole) - np.array(sent)] if old else []
        code = [in_bytes([5 + level for level in signed], 4, 12), np.array(norms)]
        key = {"seed": 3, "rank": 2, "turn": 7, "first": 40}
        cases.append(([gradient], [np.zeros(12, np.uint8), np.zeros(3), *old], {**QSGD, **key}, [*code, *left]))
    return cases


def decode_qsgd() -> list[Case]:
    levels = np.random.default_rng(1).integers(-5, 6, (2, N))
    norms = drawn(2, 3) ** 2
    packed = np.concatenate([in_bytes([5 + int(level) for level in each], 4, 12) for each in levels])
    expected = sum(np.repeat(norm, 8)[:N] * each / 5 for norm, each in zip(norms, levels, strict=True))
    return [([packed, norms.ravel()], [drawn(N)], {**QSGD, "longest": N}, [expected])]


def decode_sum() -> list[Case]:
    values, indices = drawn(6), np.array([4, 0, 4, 7, 4, 1])
    expected = [sum(v for v, i in zip(values, indices, strict=True) if i == place) for place in range(9)]
    return [([values, indices], [drawn(9, seed=1)], {}, [np.array(expected, float)])]


ROWS, COLUMNS, THIN = 5, 7, 2


def powersgd_left() -> list[Case]:
    """Element by element; a Q of zeros is drawn, by its place."""
    gradient, residual, right = drawn(ROWS * COLUMNS), drawn(ROWS * COLUMNS, seed=1), drawn(COLUMNS * THIN, seed=2)
    first = np.random.default_rng((3, 14)).standard_normal(COLUMNS * THIN)

    def products(matrix: np.ndarray, factor: np.ndarray) -> np.ndarray:
        rows = [matrix[COLUMNS * i : COLUMNS * (i + 1)] for i in range(ROWS)]
        return np.array([sum(x * y for x, y in zip(row, factor[j::THIN], strict=True)) for row in rows for j in (0, 1)])

    kept = np.array([g + e for g, e in zip(gradient, residual, strict=True)])
    room, zeros = np.full(ROWS * THIN, 9.0), np.zeros(COLUMNS * THIN)
    return [
        ([gradient], [room, right, residual], {"first": 0.0}, [products(kept, right), right, kept]),
        ([gradient], [room, zeros], {"first": 14.0, "seed": 3.0}, [products(gradient, first), first]),
    ]


def powersgd_right() -> list[Case]:
    """The columns of the factor that numpy's QR has, up to their signs; and as often the signs of P's own."""
    matrix, left = drawn(ROWS, COLUMNS), drawn(ROWS, THIN, seed=1)
    basis, upper = np.linalg.qr(left)
    basis *= np.sign(np.diag(upper))
    right = np.array([[sum(matrix[:, j] * basis[:, k]) for k in range(THIN)] for j in range(COLUMNS)])
    room = np.full(COLUMNS * THIN, 9.0)
    return [([matrix.ravel()], [left.ravel(), room], {}, [basis.ravel(), right.ravel()])]


def powersgd_decode() -> list[Case]:
    left, right, residual = drawn(ROWS, THIN), drawn(COLUMNS, THIN, seed=1), drawn(ROWS * COLUMNS, seed=2)
    total = np.array([sum(left[i] * right[j]) for i in range(ROWS) for j in range(COLUMNS)])
    room = np.full(ROWS * COLUMNS, 9.0)
    mean, rest = right.ravel() / 4, residual - total / 4
    return [
        ([left.ravel()], [right.ravel(), room, residual], {"terms": 4.0}, [mean, total, rest]),
        ([left.ravel()], [right.ravel(), room], {"terms": 4.0}, [mean, total]),
    ]
