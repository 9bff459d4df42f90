"""The screen: estimates of all influences with bounds of their errors, and its ladder."""
