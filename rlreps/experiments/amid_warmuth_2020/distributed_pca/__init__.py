"""Workers on shares of the rows whose models are combined: Table 2 of Amid & Warmuth."""
