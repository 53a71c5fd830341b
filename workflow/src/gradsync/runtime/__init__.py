"""Real ranks: execute plans, launch processes, models and data. The only user of torch.distributed."""
