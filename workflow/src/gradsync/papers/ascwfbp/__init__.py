"""ASC-WFBP: Shi, Chu and Li, "Exploiting Simultaneous Communications to Accelerate [...] Training", INFOCOM 2021."""
