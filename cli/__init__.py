"""The command line: one command a module, each over the same functions everything else uses."""
