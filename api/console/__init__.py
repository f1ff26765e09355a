"""The operators' console: pages of `/console` over the same desks as the command line."""
