"""How much the initial learning rate matters to streaming rules: Table 1 of Amid & Warmuth."""
