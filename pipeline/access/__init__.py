"""Who may do what: rights, accounts, tokens, quotas and rates."""
