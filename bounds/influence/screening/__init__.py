"""The screen: estimates of all influences with certified errors, and its ladder."""
