"""Options of each command; its docstring is the help of the command."""
