"""Translations of a model, token by token: the likeliest one each time (greedy decoding), with keys and values kept."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def translated(
    body: Any, sources: torch.Tensor, attended: torch.Tensor, most: int, special: tuple[int, int, int]
) -> torch.Tensor:
    """Tokens (batch, at most `most`) of translations of sources (batch, length); `special`: padding, start and end.

    `body` is a BartModel in eval mode, `attended` (batch, 1, 1, length) says which tokens of a source are no padding. A
    translation ends with END, unless it is cut at `most`; PADDING comes after it. Nothing before END is PADDING or
    START.
    """
    from transformers import DynamicCache, EncoderDecoderCache

    padding, start, end = special
    memory = body.encoder(input_ids=sources, attention_mask=attended).last_hidden_state
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    ended = torch.zeros(len(sources), dtype=torch.bool, device=sources.device)
    tokens = torch.full((len(sources), 1), start, device=sources.device)
    chosen = [tokens[:, :0]]
    for _ in range(most):
        output = body.decoder(
            input_ids=tokens,
            encoder_hidden_states=memory,
            encoder_attention_mask=attended,
            past_key_values=cache,
            use_cache=True,
        )
        logits = nn.functional.linear(output.last_hidden_state[:, -1], body.shared.weight)
        logits[:, [padding, start]] = -torch.inf
        tokens = logits.argmax(1, keepdim=True).masked_fill(ended[:, None], padding)
        chosen.append(tokens)
        ended |= tokens[:, 0] == end
        if bool(ended.all()):
            break
    return torch.cat(chosen, 1)
